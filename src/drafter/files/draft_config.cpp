// SPDX-License-Identifier: Apache-2.0
#include "drafter/files/draft_config.h"

#include "base/check.h"

namespace tlt::drafter {
namespace {

using nlohmann::json;

const char* model_type(model::Family family) {
  switch (family) {
    case model::Family::kQwen2:
      return "qwen2";
    case model::Family::kQwen3:
      return "qwen3";
    case model::Family::kLlama:
      break;
  }
  return "llama";
}

json rope_scaling(const model::RopeConfig& rope) {
  if (rope.type == "default") return nullptr;
  if (rope.type == "linear") return {{"rope_type", rope.type}, {"factor", rope.factor}};
  if (rope.type == "yarn")
    return {{"rope_type", rope.type},
            {"factor", rope.factor},
            {"beta_fast", rope.beta_fast},
            {"beta_slow", rope.beta_slow},
            {"truncate", rope.truncate},
            {"attention_factor", rope.attention_factor},
            {"original_max_position_embeddings", rope.original_max_positions}};
  return {{"rope_type", rope.type},
          {"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_max_position_embeddings", rope.original_max_positions}};
}

const char* architecture(model::Family family) {
  switch (family) {
    case model::Family::kQwen2:
      return "Qwen2ForCausalLM";
    case model::Family::kQwen3:
      return "Qwen3ForCausalLM";
    case model::Family::kLlama:
      break;
  }
  return "LlamaForCausalLM";
}

std::string draft_architecture(model::Family family) {
  std::string name = architecture(family);
  name += "Eagle";
  return name;
}

}  // namespace

bool is_eagle3_config(const json& source) {
  return source.value("architectures", json()).dump().find("Eagle3") != std::string::npos;
}

std::string policy_architecture(const json& source, const std::string& path) {
  TLT_CHECK_INPUT(source.contains("architectures"), path,
                  ": architectures is missing; add it, as [\"LlamaForCausalLMEagle\"]");
  const json& names = source.at("architectures");
  for (const model::Family family :
       {model::Family::kLlama, model::Family::kQwen2, model::Family::kQwen3})
    if (names == json::array({draft_architecture(family)})) return architecture(family);
  throw InputError(path + ": architectures is " + names.dump() +
                   "; a draft model has one of [\"LlamaForCausalLMEagle\"], "
                   "[\"Qwen2ForCausalLMEagle\"], [\"Qwen3ForCausalLMEagle\"] and "
                   "[\"LlamaForCausalLMEagle3\"]");
}

void check_fits_target(const model::ModelConfig& drafter, const model::ModelConfig& target,
                       const std::string& where) {
  drafter.check(where);
  const auto check_equal = [&](const char* key, int64_t have, int64_t want, const char* whose) {
    TLT_CHECK_INPUT(have == want, where, ": ", key, " is ", have, " and ", whose, " is ", want,
                    "; give a draft model that was made for this target");
  };
  check_equal("num_hidden_layers", drafter.layers, 1, "that of an EAGLE draft model");
  check_equal("hidden_size", drafter.hidden, target.hidden, "the target's");
  check_equal("vocab_size", drafter.vocabulary, target.vocabulary, "the target's");
}

json draft_config_json(const model::ModelConfig& config, const json& target) {
  json out = {{"architectures", json::array({draft_architecture(config.family)})},
              {"model_type", model_type(config.family)},
              {"attention_bias", false},  // Qwen2's class has its biases by default
              {"attention_dropout", 0.0},
              {"head_dim", config.head_size},
              {"hidden_act", "silu"},
              {"hidden_size", config.hidden},
              {"initializer_range", 0.02},
              {"intermediate_size", config.intermediate},
              {"max_position_embeddings", config.max_positions},
              {"num_attention_heads", config.heads},
              {"num_hidden_layers", config.layers},
              {"num_key_value_heads", config.kv_heads},
              {"rms_norm_eps", config.norm_epsilon},
              {"rope_scaling", rope_scaling(config.rope)},
              {"rope_theta", config.rope.theta},
              {"tie_word_embeddings", config.tied},
              {"torch_dtype", config.type_name.empty() ? "float32" : config.type_name},
              {"use_cache", true},
              {"vocab_size", config.vocabulary}};
  if (config.family == model::Family::kLlama)
    out["mlp_bias"] = false;
  else
    out["use_sliding_window"] = false;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (target.is_object() && target.contains(key)) out[key] = target.at(key);
  return out;
}

}  // namespace tlt::drafter

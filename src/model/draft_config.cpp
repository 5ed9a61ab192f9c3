// SPDX-License-Identifier: Apache-2.0
#include "model/draft_config.h"

namespace tlt::model {
namespace {

using nlohmann::json;

const char* family_name(Family family) {
  switch (family) {
    case Family::kQwen2:
      return "Qwen2";
    case Family::kQwen3:
      return "Qwen3";
    case Family::kLlama:
      break;
  }
  return "Llama";
}

const char* model_type(Family family) {
  switch (family) {
    case Family::kQwen2:
      return "qwen2";
    case Family::kQwen3:
      return "qwen3";
    case Family::kLlama:
      break;
  }
  return "llama";
}

json rope_scaling(const RopeConfig& rope) {
  if (rope.type == "default") return nullptr;
  return {{"rope_type", rope.type},
          {"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_max_position_embeddings", rope.original_max_positions}};
}

}  // namespace

std::string draft_architecture(Family family) {
  return std::string(family_name(family)) + "ForCausalLMEagle";
}

json draft_config_json(const ModelConfig& config, const json& target) {
  json out = {{"architectures", {draft_architecture(config.family)}},
              {"model_type", model_type(config.family)},
              {"attention_bias", false},  // Qwen2's biases are its class's own
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
  if (config.family == Family::kLlama)
    out["mlp_bias"] = false;
  else
    out["use_sliding_window"] = false;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (target.is_object() && target.contains(key)) out[key] = target.at(key);
  return out;
}

}  // namespace tlt::model

// SPDX-License-Identifier: Apache-2.0
#include "drafter/files/draft_export.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/files.h"
#include "drafter/files/draft_config.h"
#include "drafter/files/draft_eagle3_folder.h"
#include "drafter/files/draft_hot_tokens.h"

namespace tlt::drafter {
namespace {

using nlohmann::json;

// The name without the prefixes that trainers and formats add; the layer is `layer.`.
std::string common_name(std::string name) {
  const auto replace = [&](const std::string& from, const char* to) {
    if (name.starts_with(from)) name.replace(0, from.size(), to);
  };
  replace("model.", "");
  replace("eagle_fc.", "fc.");
  replace("layers.0.", "layer.");
  replace("midlayer.", "layer.");
  return name;
}

bool is_float(model::DataType type) {
  return type == model::DataType::kF32 || type == model::DataType::kBF16 ||
         type == model::DataType::kF16;
}

const char* torch_name(model::DataType type) {
  if (type == model::DataType::kF32) return "float32";
  return type == model::DataType::kBF16 ? "bfloat16" : "float16";
}

// Writes a file that Python's torch.load() reads as a tensor [n] int64.
void write_token_map(const std::string& path, const std::vector<int32_t>& tokens) {
  const std::vector<char> bytes =
      torch::jit::pickle_save(at::tensor(tokens, at::kInt).to(at::kLong));
  write_file_atomic(path, {bytes.data(), bytes.size()});
}

// The keys of config.json that the program reads, as JSON pointers.
std::vector<std::string> required_keys(bool is_eagle3, bool is_for_vllm) {
  const std::string layer = is_eagle3 && is_for_vllm ? "/transformer_layer_config" : "";
  std::vector<std::string> keys = {"/architectures/0", "/torch_dtype", "/tie_word_embeddings"};
  for (const char* key : {"/model_type", "/hidden_act", "/hidden_size", "/intermediate_size",
                          "/max_position_embeddings", "/num_attention_heads", "/num_hidden_layers",
                          "/num_key_value_heads", "/rms_norm_eps", "/rope_theta", "/vocab_size"})
    keys.push_back(layer + key);
  if (is_eagle3) keys.insert(keys.end(), {"/draft_vocab_size", "/target_hidden_size"});
  if (is_eagle3 && is_for_vllm)
    keys.insert(keys.end(),
                {"/eagle_aux_hidden_state_layer_ids/2", "/norm_before_residual",
                 "/speculators_config/algorithm", "/speculators_config/default_proposal_method",
                 "/speculators_config/proposal_methods/0/proposal_type",
                 "/speculators_config/proposal_methods/0/speculative_tokens",
                 "/speculators_config/verifier/architectures/0",
                 "/speculators_config/verifier/name_or_path", "/speculators_model_type",
                 "/speculators_version"});
  return keys;
}

// The hot tokens of the draft model's folder, if fewer than the whole vocabulary are requested.
std::vector<int32_t> chosen_hot_tokens(const std::string& folder, int64_t vocabulary,
                                       int64_t count) {
  if (count == 0 || count >= vocabulary) return {};
  return hottest(read_hot_tokens(folder, vocabulary), count);
}

}  // namespace

DraftExport::DraftExport(const std::string& drafter_folder, const std::string& target_folder,
                         const DraftExportOptions& options)
    : options_(options) {
  read_config(drafter_folder, target_folder);
  TLT_CHECK_INPUT(!is_for_vllm() || layer_.family != model::Family::kQwen3, drafter_folder,
                  ": its layer is Qwen3's, and vLLM supports no such EAGLE draft model; train one "
                  "with speculative.train.algorithm=eagle3, or export for sglang");
  source_ = std::make_unique<DraftTensors>(drafter_folder, common_name);
  list_tensors();
  check_source(drafter_folder);
  type_ = source_->find("fc.weight")->type;
  if (is_eagle3_) head_tokens_ = read_head_tokens(*source_, eagle3_, drafter_folder);
  if (!is_for_vllm() && !is_eagle3_)
    hot_tokens_ = chosen_hot_tokens(drafter_folder, layer_.vocabulary, options.hot_tokens);
}

void DraftExport::read_config(const std::string& drafter_folder, const std::string& target_folder) {
  const std::string path = drafter_folder + "/config.json";
  const json source = model::read_json_object(path);
  target_ = model::ModelConfig::read(target_folder);
  is_eagle3_ = is_eagle3_config(source);
  if (is_eagle3_) {
    eagle3_ = Eagle3Config::read(drafter_folder, target_);
    layer_ = eagle3_.layer;
    return;
  }
  json policy = source;  // the layer's keys are those of a decoder
  policy["architectures"] = {policy_architecture(source, path)};
  layer_ = model::ModelConfig::parse(policy, path);
  layer_.source = source;
  check_fits_target(layer_, target_, path);
}

// Lists every tensor that the served class has; depends on the sizes only.
void DraftExport::list_tensors() {
  const int64_t d = layer_.hidden, f = layer_.intermediate, q = layer_.heads * layer_.head_size,
                kv = layer_.kv_heads * layer_.head_size, in = is_eagle3_ ? 2 * d : d;
  require("fc.weight", {d, is_eagle3_ ? 3 * d : 2 * d});
  // Without it SGLang's EAGLE-1/2 class keeps a random bias; vLLM's has none and rejects one.
  if (!is_eagle3_ && !is_for_vllm()) require("fc.bias", {d});
  require("layer.self_attn.q_proj.weight", {q, in});
  require("layer.self_attn.k_proj.weight", {kv, in});
  require("layer.self_attn.v_proj.weight", {kv, in});
  require("layer.self_attn.o_proj.weight", {d, q});
  if (layer_.attention_bias) {
    require("layer.self_attn.q_proj.bias", {q});
    require("layer.self_attn.k_proj.bias", {kv});
    require("layer.self_attn.v_proj.bias", {kv});
  }
  if (layer_.qk_norm()) {
    require("layer.self_attn.q_norm.weight", {layer_.head_size});
    require("layer.self_attn.k_norm.weight", {layer_.head_size});
  }
  require("layer.post_attention_layernorm.weight", {d});
  require("layer.mlp.gate_proj.weight", {f, d});
  require("layer.mlp.up_proj.weight", {f, d});
  require("layer.mlp.down_proj.weight", {d, f});
  if (!is_eagle3_) return;
  require("layer.input_layernorm.weight", {d});
  require("layer.hidden_norm.weight", {d});
  require("norm.weight", {d});
  require("lm_head.weight", {eagle3_.head_rows, d});
  // If the LM head has all tokens vLLM's class has no map, and rejects one.
  if (is_for_vllm() && eagle3_.head_rows == layer_.vocabulary) return;
  require("d2t", {eagle3_.head_rows}, model::DataType::kI64);
  require("t2d", {layer_.vocabulary}, model::DataType::kBool);
}

void DraftExport::require(const std::string& plain, std::vector<int64_t> shape,
                          std::optional<model::DataType> type) {
  constexpr std::string_view kLayer = "layer.";
  std::string name = plain;
  if (plain.starts_with(kLayer))
    name.replace(0, kLayer.size(), is_eagle3_ && !is_for_vllm() ? "midlayer." : "layers.0.");
  required_.push_back({plain, name, std::move(shape), type});
}

void DraftExport::check_source(const std::string& drafter_folder) const {
  std::set<std::string> known = {"fc.bias", "d2t", "t2d", "embed_tokens.weight"};
  if (!is_eagle3_) known.insert("lm_head.weight");
  for (const Required& tensor : required_) {
    known.insert(tensor.plain);
    if (tensor.type || (tensor.plain == "fc.bias" && !source_->has("fc.bias"))) continue;
    TLT_CHECK_INPUT(source_->has(tensor.plain), drafter_folder, ": no tensor ", tensor.name,
                    "; the weights do not belong to this config.json, or a file is missing");
    const model::TensorEntry& entry = *source_->find(tensor.plain);
    if (entry.shape != tensor.shape)
      source_->refuse(
          tensor.plain,
          check_internal::concat(" has shape ", at::IntArrayRef(entry.shape),
                                 " and this config.json's is ", at::IntArrayRef(tensor.shape)));
    if (!is_float(entry.type))
      source_->refuse(tensor.plain,
                      check_internal::concat(" is ", model::data_type_name(entry.type),
                                             "; weights must be F32, BF16 or F16"));
  }
  if (source_->has("fc.bias")) source_->check_zero_bias("fc.bias");
  for (const auto& [plain, name] : source_->names())
    if (!known.contains(plain) && !plain.ends_with("rotary_emb.inv_freq"))
      source_->refuse(plain,
                      " is not in this draft model; the weights do not belong to this "
                      "config.json");
}

int64_t DraftExport::parameters() const {
  int64_t sum = 0;
  for (const Required& tensor : required_)
    if (!tensor.type && tensor.plain != "fc.bias") sum += c10::multiply_integers(tensor.shape);
  return sum;
}

json DraftExport::sglang_config() const {
  json config = draft_config_json(layer_, target_.source);  // for keys that the source lacks
  config.update(layer_.source);
  config.erase("dtype");
  config["torch_dtype"] = torch_name(type_);
  config["tie_word_embeddings"] = false;
  if (is_eagle3_) {
    config["draft_vocab_size"] = eagle3_.head_rows;
    config["target_hidden_size"] = target_.hidden;
  }
  return config;
}

// The layer as a Llama's. A Qwen2 layer is a Llama layer with biases of q, k and v only.
json DraftExport::llama_config() const {
  model::ModelConfig llama = layer_;
  llama.family = model::Family::kLlama;
  llama.tied = false;
  llama.type_name = torch_name(type_);
  json config = draft_config_json(llama, target_.source);
  config["architectures"] = json::array({"LlamaForCausalLM"});
  if (layer_.attention_bias) config["qkv_bias"] = true;
  return config;
}

json DraftExport::vllm_config() const {
  const json llama = llama_config();
  if (!is_eagle3_) return llama;
  json layer = llama;
  layer.erase("architectures");
  return {
      {"architectures", json::array({"Eagle3DraftModel"})},
      {"draft_vocab_size", eagle3_.head_rows},
      // vLLM's ids are those of a layer's input, SGLang's those of its output.
      {"eagle_aux_hidden_state_layer_ids", eagle3_.layers},
      {"embed_requires_grad", false},
      {"norm_before_fc", false},
      {"norm_before_residual", false},  // the norm of the features; vLLM's default is true
      {"speculators_config",
       {{"algorithm", "eagle3"},
        {"default_proposal_method", "greedy"},
        {"proposal_methods", json::array({{{"accept_tolerance", 0.0},
                                           {"proposal_type", "greedy"},
                                           {"speculative_tokens", options_.speculative_tokens},
                                           {"verifier_accept_k", 1}}})},
        {"verifier",
         {{"architectures", target_.source.value("architectures", json::array())},
          {"name_or_path", options_.target_name}}}}},
      {"speculators_model_type", "eagle3"},
      {"speculators_version", "0.3.0"},
      {"target_hidden_size", target_.hidden},
      {"tie_word_embeddings", false},
      {"torch_dtype", torch_name(type_)},
      {"transformer_layer_config", layer},
  };
}

std::vector<model::TensorSource> DraftExport::tensors() const {
  const at::ScalarType type = source_->read("fc.weight").scalar_type();
  std::vector<model::TensorSource> sources;
  for (const Required& tensor : required_) {
    if (tensor.type) continue;
    sources.push_back({tensor.name, type, tensor.shape, [this, &tensor, type] {
                         return source_->has(tensor.plain) ? source_->read(tensor.plain).to(type)
                                                           : at::zeros(tensor.shape, type);
                       }});
  }
  if (required_.back().type)
    for (const model::TensorSource& tensor : head_token_tensors(head_tokens_, layer_.vocabulary))
      sources.push_back(tensor);
  return sources;
}

void DraftExport::write(const std::string& folder) const {
  make_folder(folder);
  model::write_safetensors_folder(folder, tensors());
  write_file_atomic(folder + "/config.json", config().dump(2) + "\n");
  if (has_token_map()) write_token_map(folder + "/hot_token_id.pt", hot_tokens_);
}

void DraftExport::check(const std::string& folder) const {
  const json config = model::read_json_object(folder + "/config.json");
  for (const std::string& key : required_keys(is_eagle3_, is_for_vllm()))
    TLT_CHECK(config.contains(json::json_pointer(key)), folder, "/config.json: no ", key);
  const model::SafetensorsFolder weights(folder);
  for (const Required& tensor : required_) {
    const model::TensorEntry* entry = weights.find(tensor.name);
    TLT_CHECK(entry, folder, ": no tensor ", tensor.name);
    TLT_CHECK(entry->shape == tensor.shape, folder, ": ", tensor.name, " has shape ",
              at::IntArrayRef(entry->shape), ", not ", at::IntArrayRef(tensor.shape));
    TLT_CHECK(entry->type == tensor.type.value_or(type_), folder, ": ", tensor.name, " is ",
              model::data_type_name(entry->type));
  }
  TLT_CHECK(weights.names().size() == required_.size(), folder, ": it has ", weights.names().size(),
            " tensors and should have ", required_.size());
}

}  // namespace tlt::drafter

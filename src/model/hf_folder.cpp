// SPDX-License-Identifier: Apache-2.0
#include "model/hf_folder.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <set>
#include <tuple>

#include "base/check.h"
#include "model/parameter_file.h"

namespace tlt::model {
namespace {

constexpr const char* kCopiedFiles[] = {"generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        "chat_template.json"};
constexpr int64_t kMaxCopiedBytes = int64_t{1} << 28;

// Tensors that some writers add and that have no information of their own.
bool is_redundant(const std::string& name, const ModelConfig& config) {
  return (config.tied && name == "lm_head.weight") || name.ends_with("rotary_emb.inv_freq");
}

// A config.json of a far larger model would exhaust the memory before a missing tensor is found.
void check_size(const SafetensorsFolder& weights, const ModelConfig& config) {
  constexpr int64_t kFarLarger = 8;
  int64_t numbers = 0;
  for (const std::string& name : weights.names()) numbers += weights.find(name)->elements();
  TLT_CHECK_INPUT(config.parameters() / kFarLarger <= numbers, weights.path(),
                  ": config.json is of a model of ", config.parameters(),
                  " parameters and the weights have ", numbers, "; they do not belong together");
}

void check_names(const SafetensorsFolder& weights, const PolicyModel& model) {
  std::set<std::string> expected;
  for (const Parameter& parameter : model.parameters())
    for (const Parameter::Part& part : parameter.parts) expected.insert(part.name);
  for (const std::string& name : expected)
    TLT_CHECK_INPUT(
        weights.find(name), weights.path(), ": no tensor ", name,
        name == "lm_head.weight"
            ? "; if LM head and embedding are tied, set tie_word_embeddings in config.json"
            : "; the weights do not belong to this config.json, or a file is missing");
  for (const std::string& name : weights.names())
    TLT_CHECK_INPUT(expected.contains(name) || is_redundant(name, model.config()),
                    weights.file_of(name), ": tensor ", name,
                    " is not in this model; the weights do not belong to this config.json");
}

// What the forward pass, the KV cache and the tokens of a model depend on besides its weights.
auto architecture_of(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  return std::make_pair(
      std::make_tuple(config.family, config.vocabulary, config.hidden, config.layers, config.heads,
                      config.kv_heads, config.head_size, config.intermediate, config.max_positions,
                      config.norm_epsilon, config.tied, config.attention_bias, config.eos_tokens),
      std::make_tuple(rope.theta, rope.type, rope.factor, rope.low_freq_factor,
                      rope.high_freq_factor, rope.original_max_positions, rope.beta_fast,
                      rope.beta_slow, rope.truncate, rope.attention_factor));
}

void check_same_architecture(const ModelConfig& config, const ModelConfig& present,
                             const std::string& folder) {
  TLT_CHECK_INPUT(architecture_of(config) == architecture_of(present), folder,
                  "/config.json: another architecture than that of the model in use; give a folder "
                  "of the same model with other weights");
}

nlohmann::json saved_config(const PolicyModel& model) {
  nlohmann::json config = model.config().source;
  TLT_CHECK(config.is_object(), "a model without a config.json cannot be saved");
  const bool is_old = config.contains("torch_dtype") && !config.contains("dtype");
  config[is_old ? "torch_dtype" : "dtype"] = model.type() == at::kFloat ? "float32" : "bfloat16";
  config["tie_word_embeddings"] = model.config().tied;
  return config;
}

// REQUIRES: `model` lives and does not change until the result has been used.
PolicySnapshot describe(const PolicyModel& model) {
  return {saved_config(model), sources_of(model.device(), model.parameters())};
}

void copy_files(const std::string& source_folder, const std::string& folder) {
  if (source_folder.empty() || std::filesystem::equivalent(source_folder, folder)) return;
  for (const char* name : kCopiedFiles) {
    const std::string path = source_folder + "/" + name;
    if (std::filesystem::exists(path))
      write_file_atomic(folder + "/" + name, read_file(path, kMaxCopiedBytes));
  }
  const std::string more = "/additional_chat_templates";
  if (!std::filesystem::is_directory(source_folder + more)) return;
  std::filesystem::create_directories(folder + more);
  for (const auto& file : std::filesystem::directory_iterator(source_folder + more))
    if (file.is_regular_file())
      write_file_atomic(folder + more + "/" + file.path().filename().string(),
                        read_file(file.path(), kMaxCopiedBytes));
}

}  // namespace

std::unique_ptr<PolicyModel> load_policy(const std::string& folder, const Device& device,
                                         at::ScalarType type) {
  const ModelConfig config = ModelConfig::read(folder);
  SafetensorsFolder weights(folder);
  check_size(weights, config);
  auto model = std::make_unique<PolicyModel>(config, device, type);
  check_names(weights, *model);
  for (const Parameter& parameter : model->parameters())
    for (const Parameter::Part& part : parameter.parts)
      load_part(weights, part.name, device, parameter, part);
  return model;
}

void reload_policy(PolicyModel& model, const std::string& folder) {
  check_same_architecture(ModelConfig::read(folder), model.config(), folder);
  const auto loaded = load_policy(folder, model.device(), model.type());
  for (size_t i = 0; i < model.parameters().size(); ++i)
    model.parameters()[i].write(model.device(), loaded->parameters()[i].read(model.device()));
}

PolicySnapshot snapshot_policy(const PolicyModel& model) {
  PolicySnapshot snapshot = describe(model);
  snapshot.tensors = copy_values(snapshot.tensors);
  return snapshot;
}

void save_policy(const PolicySnapshot& snapshot, const std::string& folder,
                 const std::string& source_folder, int64_t max_shard_bytes) {
  make_folder(folder);
  write_file_atomic(folder + "/config.json", snapshot.config.dump(2) + "\n");
  copy_files(source_folder, folder);
  write_safetensors_folder(folder, snapshot.tensors, max_shard_bytes);
}

void save_policy(const PolicyModel& model, const std::string& folder,
                 const std::string& source_folder) {
  save_policy(describe(model), folder, source_folder);
}

at::ScalarType parse_type(const std::string& name, const std::string& where) {
  if (name == "float32") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  throw InputError(where + " is '" + name + "'; use float32 or bfloat16");
}

}  // namespace tlt::model

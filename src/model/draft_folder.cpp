// SPDX-License-Identifier: Apache-2.0
#include "model/draft_folder.h"

#include <ATen/ATen.h>

#include <map>
#include <set>

#include "base/check.h"
#include "model/draft_config.h"
#include "model/parameter_file.h"

namespace tlt::model {
namespace {

// By the name DraftNetwork::parameters() has: the name in the file.
using Names = std::map<std::string, std::string>;

// Some trainers save the tensors of the whole class, behind `model.`. SGLang's Qwen3 class calls
// FC eagle_fc.
std::string plain_name(std::string name) {
  if (name.starts_with("model.")) name.erase(0, std::string_view("model.").size());
  if (name.starts_with("eagle_fc.")) name.erase(0, std::string_view("eagle_").size());
  return name;
}

Names names_of(const SafetensorsFolder& weights) {
  Names names;
  for (const std::string& name : weights.names()) {
    const auto [other, is_new] = names.emplace(plain_name(name), name);
    TLT_CHECK_INPUT(is_new, weights.file_of(name), ": tensors ", other->second, " and ", name,
                    " are the same one; remove one of them");
  }
  return names;
}

void check_complete(const SafetensorsFolder& weights, const Names& names,
                    const std::set<std::string>& expected) {
  for (const std::string& name : expected)
    TLT_CHECK_INPUT(names.contains(name), weights.path(), ": no tensor ", name, " (nor model.",
                    name, "); the weights do not belong to this config.json, or a file is missing");
}

// SGLang's class has a bias in FC and the network that is trained has none (PAPER 2.1): zeros say
// the same in both.
void check_bias(SafetensorsFolder& weights, const std::string& name) {
  TLT_CHECK_INPUT(at::count_nonzero(weights.read(name)).item<int64_t>() == 0, weights.file_of(name),
                  ": tensor ", name,
                  " is not zero, and this drafter's fc has no bias, so that it would predict other "
                  "tokens than it was trained to; train it without, or set the bias to zero");
}

void check_embedding(const SafetensorsFolder& weights, const std::string& name,
                     const ModelConfig& config) {
  const TensorEntry& entry = *weights.find(name);
  const std::vector<int64_t> want = {config.vocabulary, config.hidden};
  TLT_CHECK_INPUT(entry.shape == want, weights.file_of(name), ": tensor ", name, " has shape ",
                  at::IntArrayRef(entry.shape),
                  " and the target's embedding, which is used instead, ", at::IntArrayRef(want),
                  "; give a drafter that was made for this target");
}

// Why a tensor that the network does not have cannot be left out.
const char* reason_against(const std::string& name) {
  if (name == "layers.0.input_layernorm.weight")
    return " is of a norm before the attention, which an EAGLE drafter does not have; a drafter "
           "that was trained with it would predict other tokens without";
  if (name == "norm.weight")
    return " is of a norm behind the layer, which an EAGLE drafter does not have; a drafter that "
           "was trained with it would predict other tokens without";
  if (name.starts_with("midlayer.") || name == "d2t" || name == "t2d")
    return " is of an EAGLE-3 drafter; give one of EAGLE-1 or EAGLE-2 (fc.weight, layers.0.*)";
  return " has no place in this drafter; the weights do not belong to this config.json";
}

void check_other(SafetensorsFolder& weights, const std::string& plain, const std::string& name,
                 const ModelConfig& config) {
  if (plain == "lm_head.weight" || plain.ends_with("rotary_emb.inv_freq")) return;
  if (plain == "fc.bias") return check_bias(weights, name);
  if (plain == "embed_tokens.weight") return check_embedding(weights, name, config);
  throw InputError(weights.file_of(name) + ": tensor " + name + reason_against(plain));
}

ModelConfig read_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const nlohmann::json source = read_json_object(path);
  nlohmann::json policy = source;  // the layer is a decoder's: its keys are read as that one's
  policy["architectures"] = {policy_architecture(source, path)};
  ModelConfig config = ModelConfig::parse(policy, path);
  config.tied = false;  // embedding and head are the target's, whichever it has
  config.source = source;
  return config;
}

nlohmann::json saved_config(const DraftNetwork& network) {
  const ModelConfig& config = network.config();
  nlohmann::json out =
      config.source.is_object() ? config.source : draft_config_json(config, nullptr);
  out[out.contains("dtype") ? "dtype" : "torch_dtype"] =
      network.type() == at::kFloat ? "float32" : "bfloat16";
  out["tie_word_embeddings"] = false;
  return out;
}

// REQUIRES: `network` lives and does not change until the result has been used.
DraftSnapshot describe(const DraftNetwork& network) {
  DraftSnapshot snapshot{saved_config(network), sources_of(network.device(), network.parameters())};
  // Without it SGLang runs with the random bias its class starts from (vllm-project/vllm#11126).
  snapshot.tensors.push_back(
      TensorSource::of("fc.bias", at::zeros({network.config().hidden}, network.type())));
  return snapshot;
}

}  // namespace

std::unique_ptr<DraftNetwork> load_drafter(const std::string& folder, const PolicyModel& target) {
  const ModelConfig config = read_config(folder);
  check_fits_target(config, target.config(), folder + "/config.json");
  auto network = std::make_unique<DraftNetwork>(target, config);
  load_draft_weights(folder, *network);
  return network;
}

void load_draft_weights(const std::string& folder, const DraftNetwork& network) {
  SafetensorsFolder weights(folder);
  const Names names = names_of(weights);
  std::set<std::string> expected;
  for (const Parameter& parameter : network.parameters())
    for (const Parameter::Part& part : parameter.parts) expected.insert(part.name);
  check_complete(weights, names, expected);
  for (const auto& [plain, name] : names)
    if (!expected.contains(plain)) check_other(weights, plain, name, network.config());
  for (const Parameter& parameter : network.parameters())
    for (const Parameter::Part& part : parameter.parts)
      load_part(weights, names.at(part.name), network.device(), parameter, part);
}

DraftSnapshot snapshot_drafter(const DraftNetwork& network) {
  DraftSnapshot snapshot = describe(network);
  snapshot.tensors = copy_values(snapshot.tensors);
  return snapshot;
}

void save_drafter(const DraftSnapshot& snapshot, const std::string& folder) {
  save_policy(snapshot, folder, /*source_folder=*/"");
}

void save_drafter(const DraftNetwork& network, const std::string& folder) {
  save_drafter(describe(network), folder);
}

}  // namespace tlt::model

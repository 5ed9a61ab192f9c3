// SPDX-License-Identifier: Apache-2.0
#include "drafter/files/draft_folder.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "drafter/eagle/draft_eagle.h"
#include "drafter/files/draft_config.h"
#include "drafter/files/draft_eagle3_folder.h"
#include "drafter/files/draft_hot_tokens.h"
#include "drafter/files/draft_tensors.h"
#include "model/parameter_file.h"

namespace tlt::drafter {
namespace {

// Some trainers save the tensors of the whole class, with the prefix `model.`. SGLang's Qwen3 class
// names FC eagle_fc.
std::string plain_name(std::string name) {
  if (name.starts_with("model.")) name.erase(0, std::string_view("model.").size());
  if (name.starts_with("eagle_fc.")) name.erase(0, std::string_view("eagle_").size());
  return name;
}

// Why a tensor that the network does not have must not be ignored.
const char* reason_against(const std::string& name) {
  if (name == "layers.0.input_layernorm.weight")
    return " is of a norm before the attention, which an EAGLE draft model does not have; one "
           "that was trained with it would predict other tokens without";
  if (name == "norm.weight")
    return " is of a norm after the layer, which an EAGLE draft model does not have; one that "
           "was trained with it would predict other tokens without";
  if (name.starts_with("midlayer.") || name == "d2t" || name == "t2d")
    return " is of an EAGLE-3 draft model; give one of EAGLE-1 or EAGLE-2 (fc.weight, layers.0.*)";
  return " is not in this draft model; the weights do not belong to this config.json";
}

void check_other(DraftTensors& tensors, const std::string& plain,
                 const model::ModelConfig& config) {
  if (plain == "lm_head.weight" || plain.ends_with("rotary_emb.inv_freq")) return;
  if (plain == "fc.bias") return tensors.check_zero_bias(plain);
  if (plain == "embed_tokens.weight") return tensors.check_embedding(plain, config);
  tensors.refuse(plain, reason_against(plain));
}

model::ModelConfig read_config(const nlohmann::json& source, const std::string& path) {
  nlohmann::json policy = source;  // the layer's keys are those of a decoder
  policy["architectures"] = {policy_architecture(source, path)};
  model::ModelConfig config = model::ModelConfig::parse(policy, path);
  config.tied = false;  // embedding and LM head are the target's, tied or not
  config.source = source;
  return config;
}

nlohmann::json saved_config(const DraftNetwork& network) {
  const model::ModelConfig& config = network.config();
  nlohmann::json out =
      config.source.is_object() ? config.source : draft_config_json(config, nullptr);
  out[out.contains("dtype") ? "dtype" : "torch_dtype"] =
      network.type() == at::kFloat ? "float32" : "bfloat16";
  out["tie_word_embeddings"] = false;
  return out;
}

// Null: the draft model is EAGLE-1/2.
const Eagle3Network* as_eagle3(const DraftNetwork& network) {
  return dynamic_cast<const Eagle3Network*>(&network);
}

}  // namespace

std::unique_ptr<DraftNetwork> load_drafter(const std::string& folder,
                                           const model::PolicyModel& target) {
  const std::string path = folder + "/config.json";
  const nlohmann::json source = model::read_json_object(path);
  if (is_eagle3_config(source)) return load_eagle3(folder, target);
  const model::ModelConfig config = read_config(source, path);
  check_fits_target(config, target.config(), path);
  auto network = std::make_unique<EagleNetwork>(target, config);
  load_draft_weights(folder, *network);
  network->set_hot_tokens(read_hot_tokens(folder, config.vocabulary));
  return network;
}

void load_draft_weights(const std::string& folder, DraftNetwork& network) {
  if (auto* eagle3 = dynamic_cast<Eagle3Network*>(&network))
    return load_eagle3_weights(folder, *eagle3);
  DraftTensors tensors(folder, plain_name);
  tensors.load(network.device(), network.parameters(),
               [&](const std::string& plain) { check_other(tensors, plain, network.config()); });
}

DraftSnapshot describe_drafter(const DraftNetwork& network) {
  if (const Eagle3Network* eagle3 = as_eagle3(network)) return describe_eagle3(*eagle3);
  DraftSnapshot snapshot{saved_config(network),
                         model::sources_of(network.device(), network.parameters())};
  // Without it SGLang uses the random bias that its class starts from (vllm-project/vllm#11126).
  snapshot.tensors.push_back(
      model::TensorSource::of("fc.bias", at::zeros({network.config().hidden}, network.type())));
  return snapshot;
}

DraftSnapshot snapshot_drafter(const DraftNetwork& network) {
  DraftSnapshot snapshot = describe_drafter(network);
  snapshot.tensors = model::copy_values(snapshot.tensors);
  return snapshot;
}

void save_drafter(const DraftSnapshot& snapshot, const std::string& folder) {
  model::save_policy(snapshot, folder, /*source_folder=*/"");
}

void save_drafter(const DraftNetwork& network, const std::string& folder) {
  save_drafter(describe_drafter(network), folder);
  if (!network.hot_tokens().empty()) write_hot_tokens(folder, network.hot_tokens());
}

}  // namespace tlt::drafter

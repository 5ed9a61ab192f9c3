// SPDX-License-Identifier: Apache-2.0
#include "drafter/files/draft_eagle3_config.h"

#include <algorithm>

#include "base/check.h"
#include "drafter/files/draft_config.h"

namespace tlt::drafter {
namespace {

using nlohmann::json;

constexpr const char* kArchitecture = "LlamaForCausalLMEagle3";
constexpr const char* kLayerIds = "eagle_aux_hidden_state_layer_ids";

std::vector<int64_t> default_layers(int64_t layers) {
  TLT_CHECK_INPUT(layers >= Eagle3Config::kCaptured, "the target has ", layers,
                  " layers, and an EAGLE-3 draft model reads states of three; use EAGLE-2");
  if (layers < 7) return {layers - 3, layers - 2, layers - 1};
  return {2, layers / 2, layers - 3};
}

// SGLang's ids are those of a layer's output: one less than the layer whose input it is.
std::vector<int64_t> read_layers(const json& source, const std::string& path,
                                 const model::ModelConfig& target) {
  const json config = source.value("eagle_config", json::object());
  if (!config.is_object() || !config.contains(kLayerIds) || config.at(kLayerIds).is_null())
    return default_layers(target.layers);
  const json& ids = config.at(kLayerIds);
  const bool are_layers = ids.is_array() && std::ranges::all_of(ids, [&](const json& id) {
                            return id.is_number_integer() && id >= -1 && id <= target.layers - 2;
                          });
  TLT_CHECK_INPUT(are_layers, path, ": eagle_config.", kLayerIds, " is ", ids.dump(),
                  "; it must be three ascending layers from -1 to ", target.layers - 2);
  std::vector<int64_t> layers;
  for (const json& id : ids) layers.push_back(id.get<int64_t>() + 1);
  return layers;
}

int64_t read_size(const json& source, const std::string& path, const char* key, int64_t missing) {
  if (!source.contains(key) || source.at(key).is_null()) return missing;
  const json& value = source.at(key);
  TLT_CHECK_INPUT(value.is_number_integer() && value > 0, path, ": ", key, " is ", value.dump(),
                  "; it must be an integer above 0");
  return value.get<int64_t>();
}

}  // namespace

Eagle3Config Eagle3Config::make(const model::ModelConfig& target, int64_t head_rows) {
  Eagle3Config config{
      .layer = target, .head_rows = head_rows, .layers = default_layers(target.layers)};
  config.layer.family = model::Family::kLlama;
  config.layer.layers = 1;
  config.layer.tied = false;
  config.layer.attention_bias = false;
  json ids = json::array();
  for (const int64_t layer : config.layers) ids.push_back(layer - 1);
  json source = draft_config_json(config.layer, target.source);
  source["architectures"] = json::array({kArchitecture});
  source["draft_vocab_size"] = head_rows;
  source["target_hidden_size"] = target.hidden;
  source["eagle_config"] = {{kLayerIds, ids}, {"use_aux_hidden_state", true}};
  config.layer.source = source;
  return config;
}

Eagle3Config Eagle3Config::read(const std::string& folder, const model::ModelConfig& target) {
  const std::string path = folder + "/config.json";
  const json source = model::read_json_object(path);
  const json names = source.value("architectures", json::array());
  TLT_CHECK_INPUT(names == json::array({kArchitecture}), path, ": architectures is ", names.dump(),
                  "; an EAGLE-3 draft model has [\"", kArchitecture, "\"]");
  json policy = source;  // the layer's keys are those of a decoder
  policy["architectures"] = json::array({"LlamaForCausalLM"});
  Eagle3Config config;
  config.layer = model::ModelConfig::parse(policy, path);
  config.layer.tied = false;
  config.layer.source = source;
  config.head_rows = read_size(source, path, "draft_vocab_size", config.layer.vocabulary);
  config.layers = read_layers(source, path, target);
  const int64_t target_hidden = read_size(source, path, "target_hidden_size", config.layer.hidden);
  TLT_CHECK_INPUT(target_hidden == target.hidden, path, ": target_hidden_size is ", target_hidden,
                  " and the target's hidden_size is ", target.hidden,
                  "; give a draft model that was made for this target");
  config.check_fits(target, path);
  return config;
}

void Eagle3Config::check_fits(const model::ModelConfig& target, const std::string& where) const {
  check_fits_target(layer, target, where);
  TLT_CHECK_INPUT(
      layer.family == model::Family::kLlama, where,
      ": the layer of an EAGLE-3 draft model must be Llama's: SGLang supports no other");
  TLT_CHECK_INPUT(head_rows >= 1 && head_rows <= target.vocabulary, where, ": draft_vocab_size is ",
                  head_rows, "; it must be from 1 to the target's vocab_size ", target.vocabulary);
  const bool ascend =
      std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) == layers.end();
  TLT_CHECK_INPUT(std::ssize(layers) == kCaptured && ascend && layers.front() >= 0 &&
                      layers.back() < target.layers,
                  where, ": eagle_config.", kLayerIds,
                  " must be three ascending layers from -1 to ", target.layers - 2);
}

}  // namespace tlt::drafter

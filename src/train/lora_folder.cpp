// SPDX-License-Identifier: Apache-2.0
#include "train/lora_folder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/files.h"
#include "base/log.h"
#include "model/model_config.h"
#include "model/parameter_file.h"

namespace tlt::train {
namespace {

using Json = nlohmann::json;

constexpr const char* kConfig = "/adapter_config.json";
constexpr const char* kTensors = "/adapter_model.safetensors";
constexpr const char* kBase = "/base.json";

// Keys that are read, or that do not affect the meaning of the adapter's tensors.
constexpr const char* kUnderstood[] = {"r",
                                       "lora_alpha",
                                       "target_modules",
                                       "use_rslora",
                                       "peft_type",
                                       "bias",
                                       "init_lora_weights",
                                       "lora_dropout",
                                       "task_type",
                                       "peft_version",
                                       "base_model_name_or_path",
                                       "revision",
                                       "auto_mapping",
                                       "inference_mode",
                                       "layers_pattern",
                                       "megatron_core",
                                       "qalora_group_size"};

// True for a key that is present and switched off.
bool says_nothing(const Json& value) {
  return value.is_null() || value == false || value == 0 || value == "" ||
         (value.is_structured() && value.empty());
}

// Throws InputError that names the key if its value is not a T.
template <class T>
T value_of(const Json& json, const char* key, const T& otherwise, const std::string& path) {
  if (!json.contains(key) || json.at(key).is_null()) return otherwise;
  try {
    return json.at(key).get<T>();
  } catch (const Json::exception&) {
    throw InputError(path + ": " + key + " is " + json.at(key).dump() + ", not of its type");
  }
}

[[noreturn]] void refuse(const std::string& path, const std::string& key, const Json& value) {
  throw InputError(
      path + ": " + key + " is " + value.dump() +
      ", which tlt does not support; give a plain LoRA adapter of linear layers, or merge "
      "this one into its base with PEFT (merge_and_unload) and start from the result");
}

// Rejects keys that change the meaning of the tensors, so that it is not a plain adapter.
void check_plain(const Json& json, const std::string& path) {
  for (const auto& [key, value] : json.items())
    if (std::ranges::find(kUnderstood, key) == std::end(kUnderstood) && !says_nothing(value))
      refuse(path, key, value);
  if (value_of<std::string>(json, "peft_type", "LORA", path) != "LORA")
    refuse(path, "peft_type", json.at("peft_type"));
  if (value_of<std::string>(json, "bias", "none", path) != "none")
    refuse(path, "bias", json.at("bias"));
  // Other initializations (pissa, olora, loftq …) change the base as well.
  const Json start = json.value("init_lora_weights", Json(true));
  if (!start.is_boolean() && !start.is_null() && start != "gaussian")
    refuse(path, "init_lora_weights", start);
  const auto task = value_of<std::string>(json, "task_type", "CAUSAL_LM", path);
  if (task != "CAUSAL_LM") refuse(path, "task_type", json.at("task_type"));
}

std::vector<std::string> read_targets(const Json& json, const std::string& path) {
  const Json targets = json.value("target_modules", Json());
  if (targets == "all-linear") return {"all-linear"};
  TLT_CHECK_INPUT(targets.is_array(), path, ": target_modules is ", targets.dump(),
                  "; it must be a list of module names (patterns are not supported)");
  return value_of<std::vector<std::string>>(json, "target_modules", {}, path);
}

void check_names(const model::SafetensorsFile& file, const LoraAdapter& adapter) {
  std::set<std::string> expected;
  for (const model::Parameter& parameter : adapter.parameters()) {
    const std::string name = parameter.name();
    const auto* entry = file.index().find(name);
    TLT_CHECK_INPUT(entry, file.path(), ": no tensor ", name,
                    "; it does not belong to this adapter_config.json or not to this model");
    TLT_CHECK_INPUT(entry->shape == parameter.shape(), file.path(), ": tensor ", name,
                    " has shape ", at::IntArrayRef(entry->shape), " and the model needs ",
                    at::IntArrayRef(parameter.shape()), "; is it of another base model?");
    expected.insert(name);
  }
  for (const model::TensorEntry& entry : file.index().entries)
    TLT_CHECK_INPUT(expected.contains(entry.name), file.path(), ": tensor ", entry.name,
                    " does not belong to this model, or adapter_config.json does not list it");
}

// base.json is written by tlt; a folder of PEFT has none.
void check_base(const std::string& folder, const LoraAdapter& adapter) {
  if (!std::filesystem::exists(folder + kBase)) return;
  const Json base = model::read_json_object(folder + kBase);
  if (value_of<std::string>(base, "dtype", "", folder + kBase) != adapter.base_type()) return;
  TLT_CHECK_INPUT(
      value_of<std::string>(base, "sha256", "", folder + kBase) == adapter.base_checksum(), folder,
      ": the adapter was trained on other weights than model.path has; give its own base");
}

// An adapter takes memory for the rank of its config before its tensors are read.
void check_rank(const std::string& folder, int64_t rank) {
  if (!std::filesystem::exists(folder + kTensors)) return;
  const model::SafetensorsFile file(folder + kTensors);
  for (const model::TensorEntry& entry : file.index().entries)
    TLT_CHECK_INPUT(!entry.name.ends_with(".lora_A.weight") || entry.shape.empty() ||
                        entry.shape.front() == rank,
                    folder + kConfig, ": r is ", rank, " and tensor ", entry.name, " of ",
                    file.path(), " has ", entry.shape.front(),
                    " rows; copy both files of one adapter");
}

}  // namespace

LoraConfig read_lora_config(const std::string& folder) {
  const std::string path = folder + kConfig;
  const Json json = model::read_json_object(path);
  check_plain(json, path);
  if (const double dropout = value_of(json, "lora_dropout", 0.0, path); dropout != 0)
    log_warning("{}: lora_dropout is {}; tlt trains adapters without dropout", path, dropout);
  // PEFT's defaults.
  LoraConfig config{.rank = value_of<int64_t>(json, "r", 8, path),
                    .alpha = value_of<double>(json, "lora_alpha", 8, path),
                    .use_rslora = value_of(json, "use_rslora", false, path),
                    .targets = read_targets(json, path)};
  config.check(path);
  check_rank(folder, config.rank);
  return config;
}

void load_lora(const std::string& folder, LoraAdapter& adapter) {
  TLT_CHECK_INPUT(std::filesystem::exists(folder + kTensors), folder,
                  ": no adapter_model.safetensors (adapter_model.bin is not read; save the adapter "
                  "again with safetensors)");
  model::SafetensorsFile file(folder + kTensors);
  check_names(file, adapter);
  check_base(folder, adapter);
  for (const model::Parameter& parameter : adapter.parameters()) {
    const at::Tensor values = file.read(parameter.name());
    TLT_CHECK_INPUT(at::isFloatingType(values.scalar_type()), file.path(), ": tensor ",
                    parameter.name(), " must be F32, BF16 or F16");
    parameter.write(adapter.device(), values.to(at::kFloat).to(adapter.device().torch()));
  }
  adapter.merge();
}

LoraSnapshot snapshot_lora(const LoraAdapter& adapter, const std::string& base_name,
                           const std::string& base_checksum) {
  const LoraConfig& config = adapter.config();
  std::vector<std::string> targets = config.targets;
  if (config.is_all_linear())  // the same meaning in every version of PEFT
    targets.assign(std::begin(kLoraProjections), std::end(kLoraProjections));
  Json alpha = config.alpha;  // PEFT's type is an integer
  if (config.alpha == std::floor(config.alpha)) alpha = static_cast<int64_t>(config.alpha);
  return {.config = {{"base_model_name_or_path", base_name},
                     {"bias", "none"},
                     {"fan_in_fan_out", false},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"lora_alpha", alpha},
                     {"lora_dropout", 0.0},
                     {"modules_to_save", nullptr},
                     {"peft_type", "LORA"},
                     {"r", config.rank},
                     {"revision", nullptr},
                     {"target_modules", targets},
                     {"task_type", "CAUSAL_LM"},
                     {"use_dora", false},
                     {"use_rslora", config.use_rslora}},
          .base = {{"dtype", adapter.base_type()}, {"sha256", base_checksum}},
          .tensors = model::copy_values(model::sources_of(adapter.device(), adapter.parameters()))};
}

void save_lora(const LoraSnapshot& snapshot, const std::string& folder) {
  make_folder(folder);
  write_file_atomic(folder + kConfig, snapshot.config.dump(2) + "\n");
  write_file_atomic(folder + kBase, snapshot.base.dump(2) + "\n");
  model::write_safetensors(folder + kTensors, snapshot.tensors);
}

}  // namespace tlt::train

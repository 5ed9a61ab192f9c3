// Adapter folders in PEFT's format: adapter_config.json and adapter_model.safetensors; and
// base.json of our own, which PEFT ignores: the identity of the base weights.
//
// Not here   the merged policy (model/hf_folder.h).
// Threading  engine thread only; a LoraSnapshot may be saved by any one thread.
//
//   LoraAdapter adapter(model, read_lora_config(folder), seed);
//   load_lora(folder, adapter);
//   save_lora(snapshot_lora(adapter, "Qwen2.5-0.5B", adapter.base_checksum()), "run/adapter");
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/safetensors.h"
#include "train/lora.h"

namespace tlt::train {

// Reads adapter_config.json. Throws InputError for a key, known or not, whose value is not
// supported (DoRA, biases, modules saved whole, ranks of single modules …).
LoraConfig read_lora_config(const std::string& folder);

// Sets A and B and merges. Throws InputError for a tensor that is missing, has another shape or
// does not belong to the model, and for a base.json of another base.
void load_lora(const std::string& folder, LoraAdapter& adapter);

struct LoraSnapshot {
  nlohmann::ordered_json config, base;
  std::vector<model::TensorSource> tensors;
};

// A copy of the adapter in its present state. base_name: path or name from which PEFT loads the
// base.
LoraSnapshot snapshot_lora(const LoraAdapter& adapter, const std::string& base_name,
                           const std::string& base_checksum);

void save_lora(const LoraSnapshot& snapshot, const std::string& folder);

}  // namespace tlt::train

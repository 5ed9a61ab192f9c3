// An adapter as PEFT keeps it: adapter_config.json and adapter_model.safetensors; and ours,
// base.json, which PEFT does not read: what the base weights were.
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

// Of adapter_config.json. InputError names a key whose value we cannot honour (DoRA, biases,
// modules saved whole, ranks of single modules …), known to us or not.
LoraConfig read_lora_config(const std::string& folder);

// Sets A and B and merges. InputError names a tensor that is missing, has another shape or has no
// place, and a base.json of another base.
void load_lora(const std::string& folder, LoraAdapter& adapter);

struct LoraSnapshot {
  nlohmann::ordered_json config, base;
  std::vector<model::TensorSource> tensors;
};

// A copy of the adapter as it is now. base_name: the path or name that PEFT loads the base by.
LoraSnapshot snapshot_lora(const LoraAdapter& adapter, const std::string& base_name,
                           const std::string& base_checksum);

void save_lora(const LoraSnapshot& snapshot, const std::string& folder);

}  // namespace tlt::train

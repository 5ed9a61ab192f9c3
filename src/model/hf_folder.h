// Hugging Face folders: loads a policy from one, and saves it as one that transformers, vLLM and
// SGLang load.
//
// Not here   the keys of config.json (model_config.h); the format of the weights (safetensors.h).
// Threading  engine thread only; a PolicySnapshot may be saved by any one thread.
//
//   const auto model = load_policy("models/Qwen3-0.6B", device, at::kBFloat16);
//   save_policy(snapshot_policy(*model), "runs/a/checkpoints/step_000010/policy",
//               "models/Qwen3-0.6B");
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/policy_model.h"
#include "model/safetensors.h"

namespace tlt::model {

// Reads config.json and the weights, rounded to `type` (float32 or bfloat16). Throws InputError
// that names the file and the tensor that is missing, has another shape or is not in the model.
std::unique_ptr<PolicyModel> load_policy(const std::string& folder, const Device& device,
                                         at::ScalarType type);

// Replaces the weights by those of another folder. Throws InputError as load_policy() does, and if
// the folder has another architecture than the model; then the weights are unchanged. Needs memory
// for the weights of both.
void reload_policy(PolicyModel& model, const std::string& folder);

// The policy's own part of a folder.
struct PolicySnapshot {
  nlohmann::json config;              // contents of config.json
  std::vector<TensorSource> tensors;  // in the compute type
};

// A copy of the present weights: the model may change while the snapshot is saved.
PolicySnapshot snapshot_policy(const PolicyModel& model);

// Writes config.json and the weights; copies tokenizer, chat template and generation_config.json
// from source_folder if it has them ("": none; it may be the folder itself).
void save_policy(const PolicySnapshot& snapshot, const std::string& folder,
                 const std::string& source_folder,
                 int64_t max_shard_bytes = int64_t{5'000'000'000});

// The same for the model itself, with one tensor in memory at a time.
void save_policy(const PolicyModel& model, const std::string& folder,
                 const std::string& source_folder);

// Parses "float32" or "bfloat16". Throws InputError for other names.
at::ScalarType parse_type(const std::string& name, const std::string& where);

}  // namespace tlt::model

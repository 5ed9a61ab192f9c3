// Drafter folders in SGLang's EAGLE layout: config.json and the trained tensors alone. Of EAGLE-1/2
// these are `fc.weight` and `layers.0.*`; embedding and head are the target's. What an EAGLE-3
// drafter has: draft_eagle3_folder.h.
//
// Not here   what the tensors mean (draft_network.h); the keys of config.json (draft_config.h).
// Threading  engine thread only; a DraftSnapshot may be saved by any one thread.
//
//   const auto drafter = load_drafter("models/Qwen2.5-7B-Eagle", *target);
//   save_drafter(snapshot_drafter(*drafter), "runs/a/checkpoints/step_000010/drafter");
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "model/draft_network.h"
#include "model/hf_folder.h"

namespace tlt::model {

// The drafter of a folder that was made for this target, in the target's compute type; its kind is
// that of config.json's architectures. Its layer may be of another family. InputError names the
// file and the key or tensor, what is there and what should be. REQUIRES: `target` outlives it.
std::unique_ptr<DraftNetwork> load_drafter(const std::string& folder, const PolicyModel& target);

// Reads the weights only, into a drafter of the same configuration: how a run resumes.
void load_draft_weights(const std::string& folder, DraftNetwork& network);

using DraftSnapshot = PolicySnapshot;

// The drafter as it is written. REQUIRES: `network` lives and does not change until the result has
// been used.
DraftSnapshot describe_drafter(const DraftNetwork& network);

// A copy of the weights as they are now: the drafter may be trained on while the snapshot is saved.
DraftSnapshot snapshot_drafter(const DraftNetwork& network);

// Writes config.json and model.safetensors.
void save_drafter(const DraftSnapshot& snapshot, const std::string& folder);

// The same from the drafter itself, one tensor in memory at a time; and hot_token_id.json, where it
// knows its hot tokens.
void save_drafter(const DraftNetwork& network, const std::string& folder);

}  // namespace tlt::model

// Draft model folders in SGLang's EAGLE layout: config.json and the trained tensors only.
// EAGLE-1/2: `fc.weight` and `layers.0.*`; embedding and LM head are the target's. EAGLE-3:
// draft_eagle3_folder.h.
//
// Not here   the meaning of the tensors (draft_network.h); the keys of config.json
//            (draft_config.h).
// Threading  engine thread only; a DraftSnapshot may be saved by any one thread.
//
//   const auto drafter = load_drafter("models/Qwen2.5-7B-Eagle", *target);
//   save_drafter(snapshot_drafter(*drafter), "runs/a/checkpoints/step_000010/drafter");
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "drafter/eagle/draft_network.h"
#include "model/hf_folder.h"

namespace tlt::drafter {

// Loads a draft model that was made for this target, in the target's compute type; config.json's
// architectures determine its kind. Its layer may be of another family. Throws InputError that
// names the file and the key or tensor, what is there and what should be. REQUIRES: `target`
// outlives it.
std::unique_ptr<DraftNetwork> load_drafter(const std::string& folder,
                                           const model::PolicyModel& target);

// Reads the weights only, into a draft model of the same configuration, to resume a run.
void load_draft_weights(const std::string& folder, DraftNetwork& network);

using DraftSnapshot = model::PolicySnapshot;

// The contents of the folder. REQUIRES: `network` lives and does not change until the result has
// been used.
DraftSnapshot describe_drafter(const DraftNetwork& network);

// A copy of the present weights: the draft model may be trained while the snapshot is saved.
DraftSnapshot snapshot_drafter(const DraftNetwork& network);

// Writes config.json and model.safetensors.
void save_drafter(const DraftSnapshot& snapshot, const std::string& folder);

// The same for the draft model itself, with one tensor in memory at a time; also writes
// hot_token_id.json if its hot tokens are known.
void save_drafter(const DraftNetwork& network, const std::string& folder);

}  // namespace tlt::drafter

// LoopState: the progress of a run that is saved with weights and optimizer state.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "data/sampler.h"

namespace tlt::run {

struct LoopState {
  int64_t step = 0;         // steps done
  int64_t gen_batches = 0;  // generation batches rolled out for them; each has its own uniforms
  data::SamplerCursor cursor;
};

// The file state/loop.json of a checkpoint.
struct SavedState {
  LoopState state;
  int64_t optimizer_steps = 0;
  int64_t skipped_in_row = 0;  // Optimizer::skipped_in_row()
};
std::string to_json(const SavedState& saved);
// Throws InputError, which names `location`, if a field is missing.
SavedState parse_state(const std::string& json, const std::string& location);

}  // namespace tlt::run

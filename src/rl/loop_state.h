// LoopState: how far a run is, beside weights and optimizer.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "data/sampler.h"

namespace tlt::rl {

struct LoopState {
  int64_t step = 0;         // steps done
  int64_t gen_batches = 0;  // rolled out for them: each has random numbers of its own
  data::SamplerCursor cursor;
};

// The file state/loop.json of a checkpoint.
std::string to_json(const LoopState& state, int64_t optimizer_steps);

struct SavedState {
  LoopState state;
  int64_t optimizer_steps = 0;
};
// InputError names the place when a field is missing.
SavedState parse_state(const std::string& json, const std::string& place);

}  // namespace tlt::rl

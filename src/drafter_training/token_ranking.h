// Token ranking for the draft vocabulary: tokens by their frequency in the training data
// (drafter/files/draft_hot_tokens.h).
//
// Threading  no state; any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafter_training/draft_sample.h"

namespace tlt::drafter_training {

// All `vocabulary` tokens, ranked: first `always` (the end tokens, which no sample has: its last
// token is not in it), then those of the samples' responses by frequency, then the others; equal
// ones by id.
std::vector<int32_t> rank_tokens(std::span<const DraftSample> samples,
                                 std::span<const int32_t> always, int64_t vocabulary);

}  // namespace tlt::drafter_training

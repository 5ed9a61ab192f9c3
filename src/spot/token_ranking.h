// Which tokens a drafter should be able to guess: counted in what it learns from
// (model/draft_hot_tokens.h).
//
// Threading  no state; any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spot/draft_sample.h"

namespace tlt::spot {

// All `vocabulary` tokens: first `always` (the ends of sequences, which no sample has: its last
// token is not in it), then those of the samples' responses by how often they occur, then the
// others; of equals the lowest first.
std::vector<int32_t> rank_tokens(std::span<const DraftSample> samples,
                                 std::span<const int32_t> always, int64_t vocabulary);

}  // namespace tlt::spot

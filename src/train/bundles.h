// Bundles: samples of one prompt, which goes through the model once for all of them.
//
// The rows of a prompt's whole pages (ops::kPageSlots) are a stem and the samples its branches
// (ops::Segment), so that the gradients are those of every sample alone, up to rounding.
//
// Threading  pure functions.
//
//   const std::vector<Bundle> bundles = plan_bundles(samples, members, /*token_budget=*/4096);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/sample.h"

namespace tlt::train {

struct Bundle {
  std::vector<int64_t> samples;  // indices, ascending; at least one
  int64_t stem = 0;              // tokens that all begin with, computed once; 0: a sample alone
  int64_t tokens = 0;            // that go through the model
  double cost = 0;               // cost_of_tokens
};

// Neighbours with the same prompt, of at least one whole page. A prompt's samples are several
// bundles where one would be above the budget, or more than an eighth of everything, which workers
// could not share evenly. `members`: indices of samples, ascending.
// REQUIRES: every sample has a token before its response.
std::vector<Bundle> plan_bundles(std::span<const TrainSample> samples,
                                 std::span<const int64_t> members, int64_t token_budget);

}  // namespace tlt::train

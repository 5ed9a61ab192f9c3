// Prefix groups: samples of one prompt that share the prompt's token rows.
//
// The rows of a prompt's whole pages (ops::kPageSlots) are a shared prefix, computed once, and the
// rest of each sample is a suffix (ops::Segment). The gradients equal those of the samples alone,
// up to rounding.
//
// Threading  pure functions.
//
//   const std::vector<PrefixGroup> groups = plan_prefix_groups(samples, members, 4096);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/sample.h"

namespace tlt::train {

struct PrefixGroup {
  std::vector<int64_t> samples;  // indices, ascending; at least one
  int64_t prefix = 0;            // tokens of the shared prefix, computed once; 0: a single sample
  int64_t tokens = 0;            // token rows that go through the model
  double cost = 0;               // cost_of_tokens
};

// Groups neighbouring samples with the same prompt of at least one whole page. A prompt's samples
// are in several groups if one group would exceed the budget, or an eighth of all tokens, which
// workers could not share evenly. `members`: indices of samples, ascending.
// REQUIRES: every sample has a token before its response.
std::vector<PrefixGroup> plan_prefix_groups(std::span<const TrainSample> samples,
                                            std::span<const int64_t> members, int64_t token_budget);

}  // namespace tlt::train

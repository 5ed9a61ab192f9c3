// SamplingRule: temperature and truncation of a token's distribution.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tlt::ops {

// Truncations apply in the order top-k, top-p, min-p (as in vLLM), on the temperature-scaled
// distribution.
struct SamplingRule {
  double temperature = 1.0;  // 0: the most likely token (the lowest id of equally likely ones)
  int64_t top_k = 0;         // 0 or -1: all
  double top_p = 1.0;
  double min_p = 0.0;

  bool truncates() const { return top_k > 0 || top_p < 1.0 || min_p > 0.0; }
  // Temperature of the reported logprobs: greedy sampling reports the unscaled distribution.
  double logprob_temperature() const { return temperature > 0 ? temperature : 1.0; }
};

}  // namespace tlt::ops

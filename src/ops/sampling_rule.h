// SamplingRule: how a token is chosen from its distribution.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tlt::ops {

// How a token is chosen. Truncations apply in the order top-k, top-p, min-p (as in vLLM), on the
// temperature-scaled distribution.
struct SamplingRule {
  double temperature = 1.0;  // 0: the most likely token (the lowest id of equals)
  int64_t top_k = 0;         // 0 or -1: all
  double top_p = 1.0;
  double min_p = 0.0;

  bool truncates() const { return top_k > 0 || top_p < 1.0 || min_p > 0.0; }
  // The temperature logprobs are taken at: greedy sampling reports the plain distribution.
  double logprob_temperature() const { return temperature > 0 ? temperature : 1.0; }
};

}  // namespace tlt::ops

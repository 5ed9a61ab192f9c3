// SamplingOptions: the sampling rule of a response and its stop conditions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"
#include "ops/sampling.h"

namespace tlt::rollout {

struct SamplingOptions {
  double temperature = 1.0;
  int64_t top_k = -1;
  double top_p = 1.0;
  double min_p = 0.0;
  int64_t max_new_tokens = 1024;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_tokens;
  bool ignore_eos = false;

  void visit(auto& v) {
    v(temperature, "temperature", Affects::kResults,
      "Sampling temperature: divides the logits; 0: greedy.");
    v(top_k, "top_k", Affects::kResults, "Sample from the k most likely tokens only; -1: all.");
    v(top_p, "top_p", Affects::kResults,
      "Nucleus sampling: only the most likely tokens that together have this probability.");
    v(min_p, "min_p", Affects::kResults,
      "Only tokens at least this fraction as likely as the most likely one.");
    v(max_new_tokens, "max_new_tokens", Affects::kResults, "Longest response, in tokens.");
    v(stop, "stop", Affects::kResults, "Stop strings; the token that completes one is kept.");
    v(stop_tokens, "stop_tokens", Affects::kResults,
      "Token ids that end a response, in addition to the model's own.");
    v(ignore_eos, "ignore_eos", Affects::kResults,
      "The model's end-of-sequence tokens do not end a response.");
  }

  // InputError names the field and what is accepted.
  void check() const;

  ops::SamplingRule rule() const { return {temperature, top_k, top_p, min_p}; }
};

}  // namespace tlt::rollout

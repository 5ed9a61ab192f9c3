// SimulatedSequence: a response of which tokens are generated in virtual time.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "simulate/recorded_tokens.h"

namespace tlt::simulate {

struct SimulatedSequence {
  int64_t group = 0, sample = 0;
  const ResponseTokens* recorded = nullptr;  // its tokens; null without bench_suffix
  double length = 0;                         // tokens that it will have
  double generated = 0;
  double begun = 0;       // of them, before this step
  double received = 0;    // and when its worker got it
  double to_prefill = 0;  // tokens without KV cache

  double left() const { return length - generated; }
};

}  // namespace tlt::simulate

// reduce: combines one value of each thread of a block in a fixed order, so the result does not
// depend on which thread runs first.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/block.h"

namespace tlt::ops::cuda {

// Shared memory of a reduction of the block's threads. One can serve several, one after the other.
template <class Value, int kThreads>
struct Reduction {
  static constexpr int kGroups = 16;  // each combines kThreads / 16 values
  static_assert(kThreads % kGroups == 0);
  Value values[kThreads];
  Value groups[kGroups];
};

// All threads get the result. REQUIRES: all threads of the block call it.
template <class Value, int kThreads, class Combine>
TLT_DEVICE Value reduce(const Block& block, Reduction<Value, kThreads>& shared, const Value& mine,
                        const Combine& combine) {
  constexpr int kGroups = Reduction<Value, kThreads>::kGroups;
  const int thread = block.thread();
  shared.values[thread] = mine;
  block.sync();
  if (thread < kGroups) {
    Value all = shared.values[thread];
    for (int i = thread + kGroups; i < kThreads; i += kGroups) all = combine(all, shared.values[i]);
    shared.groups[thread] = all;
  }
  block.sync();
  Value all = shared.groups[0];
  for (int i = 1; i < kGroups; ++i) all = combine(all, shared.groups[i]);
  return all;
}

template <int kThreads>
TLT_DEVICE float sum_of(const Block& block, Reduction<float, kThreads>& shared, float mine) {
  return reduce(block, shared, mine, [](float a, float b) { return a + b; });
}

// NaN is skipped.
template <int kThreads>
TLT_DEVICE float largest_of(const Block& block, Reduction<float, kThreads>& shared, float mine) {
  return reduce(block, shared, mine, [](float a, float b) { return fmaxf(a, b); });
}

}  // namespace tlt::ops::cuda

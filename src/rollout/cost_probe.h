// Cost probe: measures the cost of the target's forward passes on this machine before the first
// rollout, as the tuner's initial cost table (speculation/cost_table.h).
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "drafter/eagle/draft_network.h"
#include "rollout/model_runner.h"
#include "speculation/cost_table.h"

namespace tlt::rollout {

struct CostProbe {
  int64_t max_sequences = 64;
  int64_t max_rows = 1024;  // token rows of a forward pass
  double seconds = 0.25;    // target duration; long passes take longer
};

// Minimum seconds of each of `tasks`. The rounds interleave all tasks, so that a burst of noise
// disturbs one round of many tasks instead of all rounds of one. A short task is repeated within a
// round, up to 6 times in 4 ms, to be measured with warm caches, because decoding repeats its
// steps. `run(task)` runs the task once and returns its seconds. At least 3 rounds, and at most 12
// until `seconds` have passed.
std::vector<double> measure_interleaved(size_t tasks, double seconds,
                                        const std::function<double(size_t)>& run);

// Noise only adds time: a pass that took longer than one of more rows, for as many sequences, was
// disturbed and gets the other's seconds. REQUIRES: within a batch size and a context, costs are in
// the order of rows.
void make_monotone(std::span<speculation::ForwardCost> costs);

// Measures passes of 1, 2, 4 … sequences with one row each and, in trees, with 2, 4, 6, 7, 8, 12 …
// rows in all, after a short context, and fewer sizes after a long one, if the model has the
// positions; LM head included. The cost of larger batch sizes, left out for lack of time, is
// extrapolated.
std::vector<speculation::ForwardCost> measure_forwards(const TargetModel& target,
                                                       const CostProbe& probe);

// Measures proposals of an EAGLE drafter for 1, 2, 4 … sequences with one new token each.
std::vector<speculation::DraftCost> measure_drafts(const drafter::DraftNetwork& network,
                                                   std::span<const drafter::Strategy> strategies,
                                                   const CostProbe& probe);

}  // namespace tlt::rollout

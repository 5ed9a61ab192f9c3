// Cost probe: what forward passes of the target cost on this machine, measured before the first
// rollout, so that the tuner begins with something better than a guess (spec/cost_model.h).
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/draft_network.h"
#include "model/policy_model.h"
#include "spec/cost_model.h"

namespace tlt::rollout {

struct CostProbe {
  int64_t max_sequences = 64;
  int64_t max_rows = 1024;  // of a forward pass
  double seconds = 0.5;     // in which it should be done; it takes longer where passes do
};

// The least seconds of each of `tasks`, by passes over all of them in turns: noise that comes in
// bursts spoils a pass or two of many tasks, and not all passes of one. A short task is repeated in
// its turn, up to 6 times in 4 ms: behind a long one it finds less in the processor's caches than
// behind itself, and decoding repeats its steps. `run(task)` does the task once and returns its
// seconds. At least 3 passes, and at most 12, until `seconds` are over.
std::vector<double> measure_in_turns(size_t tasks, double seconds,
                                     const std::function<double(size_t)>& run);

// Noise only adds: a pass that took longer than one of more rows, for as many sequences, was
// disturbed, and gets that one's seconds. REQUIRES: of a batch size and a context, fewer rows come
// first.
void make_monotone(std::span<spec::ForwardCost> costs);

// Passes of 1, 2, 4 … sequences that verify trees of 1, 2, 4 … 64 rows each behind a short text,
// and of fewer sizes behind a long one, if the model has the positions; the head included. Batch
// sizes that are left out cost as the ones before let expect.
std::vector<spec::ForwardCost> measure_forwards(const model::PolicyModel& model,
                                                const CostProbe& probe);

// Proposals of an EAGLE drafter for 1, 2, 4 … sequences that got a token since the last one.
std::vector<spec::DraftCost> measure_drafts(const model::DraftNetwork& network,
                                            std::span<const spec::Strategy> strategies,
                                            const CostProbe& probe);

}  // namespace tlt::rollout

// Cost probe: what forward passes of the target cost on this machine, measured before the first
// rollout, so that the tuner begins with something better than a guess (spec/cost_model.h).
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "model/draft_network.h"
#include "model/policy_model.h"
#include "spec/cost_model.h"

namespace tlt::rollout {

struct CostProbe {
  int64_t max_sequences = 64;
  int64_t max_rows = 1024;  // of a forward pass
  double seconds = 0.5;     // after which no further batch size is begun
};

// Passes of 1, 2, 4 … sequences that verify trees of 1, 2, 4 … 64 rows each behind a short text,
// the head included. Batch sizes that are left out cost as the ones before let expect.
std::vector<spec::ForwardCost> measure_forwards(const model::PolicyModel& model,
                                                const CostProbe& probe);

// Proposals of an EAGLE drafter for 1, 2, 4 … sequences that got a token since the last one.
std::vector<spec::DraftCost> measure_drafts(const model::DraftNetwork& network,
                                            std::span<const spec::Strategy> strategies,
                                            const CostProbe& probe);

}  // namespace tlt::rollout

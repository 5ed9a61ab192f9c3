// SpeculationReport: what speculation gave in each step, summed over the workers.
//
//   rollout/spec_accept_length, spec_accept_rate   tokens a forward pass of the target and response
//                                                  gives with guesses, the bonus token included;
//                                                  share of the guesses that were right
//   speculation/step_share, draft_seconds, regret  share of the engine's steps that had guesses;
//                                                  seconds of drafting; share of the decoding time
//                                                  that the best choices in hindsight would have
//                                                  saved (this worker's, since the run began)
//   speculation/<kind>/…                           of each drafter: steps, accept_length,
//                                                  draft_seconds, accept_rate_pos_<k>: how often a
//                                                  guess k tokens ahead was right, failed,
//                                                  mixed_drafted_tokens, mixed_accepted_tokens:
//                                                  its guesses in trees of the mixed kind
//   speculation/arm/<kind>/<strategy>/…            steps, accept_length, tokens_per_second of this
//                                                  worker since the run began
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/metrics.h"
#include "cluster/comm.h"
#include "rollout/speculation.h"

namespace tlt::rl {

class SpeculationReport {
 public:
  // REQUIRES: `speculation` outlives this.
  explicit SpeculationReport(const rollout::Speculation& speculation);

  // What was counted since the last call. All workers call it together.
  void add_step(cluster::Comm& comm, Metrics& metrics);

 private:
  const rollout::Speculation& speculation_;
  std::vector<double> before_;  // all counts as of the last call
};

}  // namespace tlt::rl

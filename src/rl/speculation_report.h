// SpeculationReport: the metrics of speculative decoding of each RL step, summed over the workers.
//
//   rollout/spec_accept_length, spec_accept_rate   acceptance length, bonus token included;
//                                                  accepted draft tokens / draft tokens
//   rollout/accept_length_by_position/<bucket>     acceptance length by tokens of the response
//                                                  before the tree: 0-512, 512-2K, 2K-8K, 8K+
//   speculation/step_share, draft_seconds, regret  share of engine steps with draft trees; seconds
//                                                  of drafting; share of the decoding time that the
//                                                  best choices in hindsight would have saved (this
//                                                  worker, since its start)
//   rollout/plain_seconds                          estimated seconds of the rollouts without
//                                                  speculation; of the worker that decoded longest
//   rollout/ridge                                  token rows whose arithmetic takes as long as
//                                                  reading the weights, of measured forward passes
//   speculation/<kind>/…                           by drafter: steps, draft_rate: share of the
//                                                  sequences of those steps that had draft tokens
//                                                  to verify, accept_length, draft_seconds,
//                                                  accept_rate_pos_<k>: acceptance rate at position
//                                                  k, failed, mixed_drafted_tokens,
//                                                  mixed_accepted_tokens: its draft tokens in mixed
//                                                  trees
//   speculation/arm/<kind>/<strategy>/…            steps, accept_length, tokens_per_second of this
//                                                  worker since its start
//
// Borrows    the speculation, and its tuner.
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/metrics.h"
#include "cluster/comm.h"
#include "rollout/speculation.h"

namespace tlt::rl {

class SpeculationReport {
 public:
  // REQUIRES: `speculation` outlives this.
  explicit SpeculationReport(const rollout::Speculation& speculation);

  // Sets the metrics of what was counted since the last call. All workers call it together.
  // REQUIRES: timing_s/gen is set.
  void add_step(cluster::Comm& comm, Metrics& metrics);
  // Of that step: the share of the engine steps, of all workers, with draft tokens of a draft model.
  double draft_model_share() const { return draft_model_share_; }

 private:
  struct Counts {
    int64_t decode_steps = 0;
    double step_seconds = 0, plain_seconds = 0;  // as in SpeculationStats
    std::vector<rollout::DraftStats> drafters;
    void visit(auto&& v) {
      v(decode_steps), v(step_seconds), v(plain_seconds);
      for (rollout::DraftStats& stats : drafters) stats.visit(v);
    }
  };
  Counts take_counts();

  const rollout::Speculation& speculation_;
  const std::vector<std::string> kinds_;
  std::vector<double> before_;  // all counts at the last call
  double draft_model_share_ = 0;
};

}  // namespace tlt::rl

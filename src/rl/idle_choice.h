// Which work an idle worker does first: the one that saves the run more seconds for each second
// spent on it.
//
//   early gradients   shorten the update, which all workers share: 1 / workers
//   draft training    makes the rollouts of the next steps faster, in proportion to the draft
//                     model's acceptance length, where it drafts: gain per second x rollout seconds
//                     x share of the engine steps x steps
//
// Threading  pure function.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

namespace tlt::rl {

struct IdleValues {
  int workers = 1;
  double rollout_seconds = 0;    // of a step
  double draft_model_share = 0;  // of the engine steps: those that it drafted for
  // Relative gain in acceptance length for each second that a worker trains the draft model; 0:
  // training does not help, infinity: not known yet.
  double acceptance_gain = 0;
};

// The steps in which the draft model uses what it has learned: the paper's interval between
// trainings. Later it is of a policy that has changed.
inline constexpr double kStepsOfUse = 10;

// What training is worth at least as a share of the engine steps: a draft model that another drafter
// beats now may become the better one.
inline constexpr double kLeastShare = 0.01;

inline bool gradients_first(const IdleValues& values) {
  const double training = values.acceptance_gain * values.rollout_seconds * kStepsOfUse *
                          std::max(kLeastShare, values.draft_model_share);
  return 1.0 / values.workers >= training;
}

}  // namespace tlt::rl

// Which work an idle worker does first: the one that saves the run more seconds for each second
// spent on it.
//
//   early gradients   shorten the update, which all workers share: 1 / workers
//   draft training    makes the rollouts of the next steps faster, in proportion to the draft
//                     model's acceptance length, where it drafts: gain per second x rollout seconds
//                     x share of the engine steps x steps
//
// That share is 0 as long as another drafter is better, so the value says nothing about a draft
// model that may still become the best. While its acceptance rises it is therefore trained for a
// share of the idle time, whatever its value (exploration).
//
// Threading  pure function.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

namespace tlt::rl {

struct IdleValues {
  int workers = 1;
  double rollout_seconds = 0;    // of a step
  double draft_model_share = 0;  // of the engine steps: those that it drafted for
  // Of the idle time of all steps before this one: in which workers trained the draft model. It
  // does not change within a step: a step explores for all of its idle time or not at all, so that
  // the gain in acceptance is large enough to be measured.
  double trained_share = 0;
  // Relative gain in acceptance length for each second that a worker trains the draft model; 0:
  // training does not help, infinity: it was never trained.
  double acceptance_gain = 0;
};

// The steps in which the draft model uses what it has learned: the paper's interval between
// trainings. Later it is of a policy that has changed.
inline constexpr double kStepsOfUse = 10;

// A draft model that wins after N seconds of training has them after at most N / this of idle time;
// one that never wins costs at most this share of what early gradients save.
inline constexpr double kExploredShare = 0.2;

inline bool gradients_first(const IdleValues& values) {
  if (std::isinf(values.acceptance_gain)) return false;
  if (values.acceptance_gain > 0 && values.trained_share < kExploredShare) return false;
  const double training =
      values.acceptance_gain * values.rollout_seconds * kStepsOfUse * values.draft_model_share;
  return 1.0 / values.workers >= training;
}

}  // namespace tlt::rl

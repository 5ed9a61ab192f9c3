// SPDX-License-Identifier: Apache-2.0
#include "rl/idle_choice.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "drafter_training/drift_trigger.h"

namespace tlt::rl {
namespace {

// Of two workers, with rollouts of 10 s and a draft model that is always used. Nothing is to be
// explored.
IdleValues values_of(double acceptance_gain) {
  return {.workers = 2,
          .rollout_seconds = 10,
          .draft_model_share = 1,
          .trained_share = kExploredShare,
          .acceptance_gain = acceptance_gain};
}

TEST(IdleChoiceTest, ADraftModelThatWasNeverTrainedIsTrained) {
  IdleValues values = values_of(std::numeric_limits<double>::infinity());
  EXPECT_FALSE(gradients_first(values));
  values.draft_model_share = 0;
  EXPECT_FALSE(gradients_first(values));
}

TEST(IdleChoiceTest, GradientsComeFirstOnceTrainingGainsLittle) {
  // 2 % for each second, in ten steps of 10 s: 2 s saved, against half a second.
  EXPECT_FALSE(gradients_first(values_of(0.02)));
  EXPECT_TRUE(gradients_first(values_of(0.004)));
  EXPECT_TRUE(gradients_first(values_of(0)));
  EXPECT_TRUE(gradients_first(values_of(-1)));
}

TEST(IdleChoiceTest, ManyWorkersShareTheUpdateButNotTheRollouts) {
  IdleValues values = values_of(0.004);
  values.workers = 16;
  EXPECT_FALSE(gradients_first(values));
}

TEST(IdleChoiceTest, ShortRolloutsAreNotWorthTraining) {
  IdleValues values = values_of(0.02);
  values.rollout_seconds = 0.1;
  EXPECT_TRUE(gradients_first(values));
}

TEST(IdleChoiceTest, ARisingDraftModelThatIsNotUsedIsExplored) {
  IdleValues values = values_of(0.02);
  values.draft_model_share = 0;
  EXPECT_TRUE(gradients_first(values));
  values.trained_share = 0.9 * kExploredShare;
  EXPECT_FALSE(gradients_first(values));
  values.acceptance_gain = 0;
  EXPECT_TRUE(gradients_first(values)) << "it does not rise";
}

// A run with steps of 20 s of rollouts and 5 s of idle time, in all of which early gradients could
// be computed. acceptance(t): of the draft model after t seconds of training; it drafts where it is
// better than the other drafter.
struct Simulation {
  double idle_seconds = 0, trained_seconds = 0;
  int first_use = -1;  // step

  // `kept`: the share of its acceptance that a step without training leaves.
  Simulation(int steps, double other_drafter, const std::function<double(double)>& acceptance,
             double kept = 1) {
    drafter_training::DriftTrigger trigger;
    for (int step = 0; step < steps; ++step) {
      const double before = acceptance(trained_seconds);
      if (before > other_drafter && first_use < 0) first_use = step;
      const bool trains =
          trigger.wants_training() &&
          !gradients_first({.workers = 2,
                            .rollout_seconds = 20,
                            .draft_model_share = before > other_drafter ? 1.0 : 0.0,
                            .trained_share = step == 0 ? 0 : trained_seconds / idle_seconds,
                            .acceptance_gain = trigger.gain_per_second()});
      idle_seconds += kIdleSeconds;
      if (!trains) {
        trigger.rested(kept * before);
        continue;
      }
      trained_seconds += kIdleSeconds;
      trigger.trained(before, acceptance(trained_seconds), kIdleSeconds);
    }
  }

  static constexpr double kIdleSeconds = 5;
};

// From 1 to 3 with a time constant of 100 s: better than 2 after 70 s, 14 trainings.
TEST(IdleChoiceTest, ADraftModelThatWinsLaterIsReached) {
  const auto rising = [](double t) { return 3 - 2 * std::exp(-t / 100); };
  const Simulation run(200, 2, rising);
  EXPECT_GT(run.first_use, 0);
  EXPECT_LE(run.first_use, 14 / kExploredShare + 2);
  EXPECT_GT(rising(run.trained_seconds), 2.5) << "in use it is trained on, as it is worth it";
}

// It rises for ever, and never to the other drafter's acceptance.
TEST(IdleChoiceTest, ADraftModelThatNeverWinsCostsABoundedShare) {
  const auto rising = [](double t) { return std::exp(t / 800); };  // 2.5 % in four trainings
  const Simulation run(500, 1e9, rising);
  EXPECT_EQ(run.first_use, -1);
  EXPECT_LE(run.trained_seconds, kExploredShare * run.idle_seconds + 2 * Simulation::kIdleSeconds);
  EXPECT_GE(run.trained_seconds, kExploredShare * run.idle_seconds);
}

// What it learns is lost when the policy has changed, and can be regained.
TEST(IdleChoiceTest, ADriftingDraftModelThatNeverWinsCostsABoundedShare) {
  const auto level = [](double t) { return t > 0 ? 2.0 : 1.0; };
  const Simulation run(500, 4, level, /*kept=*/0.8);
  EXPECT_LE(run.trained_seconds, kExploredShare * run.idle_seconds + 2 * Simulation::kIdleSeconds);
  EXPECT_GT(run.trained_seconds, 2 * Simulation::kIdleSeconds);
}

// Once it no longer rises, it costs nothing.
TEST(IdleChoiceTest, ADraftModelThatStoppedRisingIsNotExplored) {
  const auto flat = [](double t) { return 2 - std::exp(-t / 10); };
  EXPECT_EQ(Simulation(100, 4, flat).trained_seconds, Simulation(1000, 4, flat).trained_seconds);
}

}  // namespace
}  // namespace tlt::rl

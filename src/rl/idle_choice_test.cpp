// SPDX-License-Identifier: Apache-2.0
#include "rl/idle_choice.h"

#include <gtest/gtest.h>

#include <limits>

namespace tlt::rl {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

TEST(IdleChoiceTest, TrainsWhileItDoesNotKnowTheGain) {
  EXPECT_FALSE(gradients_first({.workers = 1, .rollout_seconds = 1, .acceptance_gain = kUnknown}));
}

TEST(IdleChoiceTest, GradientsComeFirstOnceTrainingGainsLittle) {
  // 2 % for each second, in ten steps of 10 s: 2 s saved, against half a second.
  EXPECT_FALSE(gradients_first({.workers = 2, .rollout_seconds = 10, .acceptance_gain = 0.02}));
  EXPECT_TRUE(gradients_first({.workers = 2, .rollout_seconds = 10, .acceptance_gain = 0.004}));
  EXPECT_TRUE(gradients_first({.workers = 2, .rollout_seconds = 10, .acceptance_gain = 0}));
  EXPECT_TRUE(gradients_first({.workers = 2, .rollout_seconds = 10, .acceptance_gain = -1}));
}

TEST(IdleChoiceTest, ManyWorkersShareTheUpdateButNotTheRollouts) {
  const IdleValues few = {.workers = 2, .rollout_seconds = 10, .acceptance_gain = 0.004};
  IdleValues many = few;
  many.workers = 16;
  EXPECT_TRUE(gradients_first(few));
  EXPECT_FALSE(gradients_first(many));
}

TEST(IdleChoiceTest, ShortRolloutsAreNotWorthTraining) {
  EXPECT_FALSE(gradients_first({.workers = 2, .rollout_seconds = 10, .acceptance_gain = 0.01}));
  EXPECT_TRUE(gradients_first({.workers = 2, .rollout_seconds = 0.1, .acceptance_gain = 0.01}));
}

}  // namespace
}  // namespace tlt::rl

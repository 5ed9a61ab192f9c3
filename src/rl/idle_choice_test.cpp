// SPDX-License-Identifier: Apache-2.0
#include "rl/idle_choice.h"

#include <gtest/gtest.h>

#include <limits>

namespace tlt::rl {
namespace {

// Of two workers, with rollouts of 10 s and a draft model that is always used.
IdleValues values_of(double acceptance_gain) {
  return {.workers = 2,
          .rollout_seconds = 10,
          .draft_model_share = 1,
          .acceptance_gain = acceptance_gain};
}

TEST(IdleChoiceTest, TrainsWhileItDoesNotKnowTheGain) {
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

TEST(IdleChoiceTest, DraftModelThatIsNotUsedIsTrainedOnlyWhileItGainsMuch) {
  IdleValues values = values_of(0.02);
  values.draft_model_share = 0;
  EXPECT_TRUE(gradients_first(values));
  values.acceptance_gain = 1;
  EXPECT_FALSE(gradients_first(values));
}

}  // namespace
}  // namespace tlt::rl

// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/drift_trigger.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace tlt::drafter_training {
namespace {

DriftTrigger resting(double level) {
  DriftTrigger trigger;
  for (size_t i = 0; i < DriftTrigger::kPatience; ++i) trigger.trained(level, level, 1);
  return trigger;
}

TEST(DriftTriggerTest, TrainsWhileAcceptanceImproves) {
  DriftTrigger trigger;
  double acceptance = 1;
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(trigger.wants_training()) << i;
    trigger.trained(acceptance, 1.03 * acceptance, 1);
    acceptance *= 1.03;
  }
  int steps = 0;
  for (; trigger.wants_training() && steps < 50; ++steps)
    trigger.trained(acceptance, acceptance, 1);
  EXPECT_EQ(steps, static_cast<int>(DriftTrigger::kPatience));
}

TEST(DriftTriggerTest, RestsUntilAcceptanceHasFallen) {
  DriftTrigger trigger = resting(4);
  EXPECT_FALSE(trigger.wants_training());
  for (int i = 0; i < 50; ++i) trigger.rested(i % 2 == 0 ? 3.9 : 4.1);  // noise
  EXPECT_FALSE(trigger.wants_training());
  trigger.rested(3.6);  // once is not enough
  EXPECT_FALSE(trigger.wants_training());
  for (int i = 0; i < 10 && !trigger.wants_training(); ++i) trigger.rested(3.6);
  EXPECT_TRUE(trigger.wants_training());
}

TEST(DriftTriggerTest, StepWithoutMeasurementIsIgnored) {
  DriftTrigger trigger;
  for (int i = 0; i < 20; ++i) trigger.trained(0, 0, 1);
  EXPECT_TRUE(trigger.wants_training());
  trigger = resting(4);
  for (int i = 0; i < 20; ++i) trigger.rested(0);
  EXPECT_FALSE(trigger.wants_training());
}

TEST(DriftTriggerTest, KnowsTheGainOfTheLatestTrainings) {
  DriftTrigger trigger;
  EXPECT_EQ(trigger.gain_per_second(), std::numeric_limits<double>::infinity());
  trigger.trained(1, 3, 4);
  EXPECT_NEAR(trigger.gain_per_second(), 0.5, 1e-12);
  for (size_t i = 0; i < DriftTrigger::kPatience; ++i) trigger.trained(3, 3.3, 2);
  EXPECT_NEAR(trigger.gain_per_second(), 0.05, 1e-12);
}

TEST(DriftTriggerTest, WhatIsLostWithoutTrainingIsExpectedToBeRegained) {
  DriftTrigger trigger;
  trigger.trained(4, 4.1, 1);
  trigger.trained(4.1, 4.1, 3);
  trigger.rested(4.1);  // other work was worth more
  EXPECT_NEAR(trigger.gain_per_second(), 0.025 / 4, 1e-12);
  for (int i = 0; i < 50; ++i) trigger.rested(3.28);
  EXPECT_NEAR(trigger.gain_per_second(), (4.1 / 3.28 - 1) / 2, 1e-6) << "a training takes 2 s";
  EXPECT_TRUE(trigger.wants_training());
}

TEST(DriftTriggerTest, RestoredTriggerContinuesLikeTheSavedOne) {
  for (int steps = 0; steps < 12; ++steps) {
    DriftTrigger trigger;
    const auto live = [](DriftTrigger& it, int i) {
      it.wants_training() ? it.trained(4, i < 3 ? 4.2 : 4.0, i) : it.rested(3.5);
    };
    for (int i = 0; i < steps; ++i) live(trigger, i);
    DriftTrigger other;
    other.restore(nlohmann::json::parse(trigger.save().dump()));
    for (int i = steps; i < 20; ++i) {
      EXPECT_EQ(other.wants_training(), trigger.wants_training()) << steps << " " << i;
      EXPECT_EQ(other.gain_per_second(), trigger.gain_per_second()) << steps << " " << i;
      live(trigger, i), live(other, i);
    }
  }
}

}  // namespace
}  // namespace tlt::drafter_training

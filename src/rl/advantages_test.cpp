// SPDX-License-Identifier: Apache-2.0
#include "rl/advantages.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tlt::rl {
namespace {

TEST(AdvantagesTest, GrpoDividesTheDistanceFromTheMeanByTheDeviation) {
  const std::vector<double> scores = {1, 0, 0, 1, 0.5};
  const std::vector<double> got = group_advantages({}, scores);
  const double mean = 0.5, deviation = std::sqrt((0.25 * 4) / 4);
  for (size_t i = 0; i < scores.size(); ++i)
    EXPECT_NEAR(got[i], (scores[i] - mean) / (deviation + 1e-6), 1e-12);
}

TEST(AdvantagesTest, WithoutNormOnlyTheMeanIsTakenAway) {
  EXPECT_EQ(group_advantages({.norm_adv_by_std_in_grpo = false}, std::vector<double>{3, 1}),
            (std::vector<double>{1, -1}));
}

TEST(AdvantagesTest, EqualScoresTeachNothing) {
  for (const double a : group_advantages({}, std::vector<double>{1, 1, 1})) EXPECT_EQ(a, 0);
}

TEST(AdvantagesTest, AGroupOfOneKeepsItsScore) {
  EXPECT_EQ(group_advantages({}, std::vector<double>{0.7}), std::vector<double>{0.7});
}

TEST(AdvantagesTest, UnknownEstimatorIsRefusedByName) {
  AlgorithmOptions options;
  options.adv_estimator = "gae";
  EXPECT_THROW(options.check(), InputError);
}

}  // namespace
}  // namespace tlt::rl

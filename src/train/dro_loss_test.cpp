// SPDX-License-Identifier: Apache-2.0
#include "train/dro_loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"

namespace tlt::train {
namespace {

constexpr double kBeta = 0.3;

TrainSample sample() {
  TrainSample made;
  made.tokens = {1, 2, 3, 4, 5};
  made.response_begin = 2;
  made.rollout_logprobs = {-1, -2, -0.5};
  made.advantages = {0.5, 0, -2};
  return made;
}

// The formula of the API's documentation.
double plain_loss(const TrainSample& s, const std::vector<float>& logprobs) {
  double objective = 0;
  for (size_t i = 0; i < logprobs.size(); ++i) {
    const double quadratic = std::pow(double{logprobs[i]} - s.rollout_logprobs[i], 2);
    objective += s.weight(static_cast<int64_t>(i)) *
                 (double{logprobs[i]} * s.advantages[i] - 0.5 * kBeta * quadratic);
  }
  return -objective;
}

TEST(DroLossTest, LossAndDerivativesAreThoseOfTheFormula) {
  for (const std::vector<float>& weights : {std::vector<float>{}, std::vector<float>{1, 0.5, 0}}) {
    TrainSample s = sample();
    s.weights = weights;
    std::vector<float> logprobs = {-1.5, -0.25, -3};
    const std::vector<float> entropies(3, 1);
    std::vector<float> slopes(3, 9), entropy_slopes(3, 9);
    DroLoss loss({.beta = kBeta});
    for (size_t i = 0; i < 3; ++i)  // in pieces
      loss.add(
          {s, static_cast<int64_t>(i), std::span(logprobs).subspan(i, 1), std::span(entropies)},
          {std::span(slopes).subspan(i, 1), std::span(entropy_slopes).subspan(i, 1)});
    EXPECT_NEAR(loss.take_sums().front(), plain_loss(s, logprobs), 1e-9);
    EXPECT_EQ(loss.take_sums().front(), 0);
    EXPECT_EQ(entropy_slopes, std::vector<float>(3));
    for (size_t i = 0; i < 3; ++i) {
      constexpr float kStep = 1.0F / 1024;
      const float at = logprobs[i];
      logprobs[i] = at + kStep;
      const double above = plain_loss(s, logprobs);
      logprobs[i] = at - kStep;
      const double below = plain_loss(s, logprobs);
      logprobs[i] = at;
      EXPECT_NEAR(slopes[i], (above - below) / (2 * kStep), 1e-6) << i;
    }
  }
}

TEST(DroLossTest, AdvantagesOfZeroLearnToo) {
  TrainSample s = sample();
  s.advantages = {0, 0, 0};
  EXPECT_TRUE(DroLoss({.beta = kBeta}).learns_from(s));
  EXPECT_THROW(DroLoss({.beta = -1}), InputError);
  EXPECT_THROW(DroLoss({.beta = std::nan("")}), InputError);
}

}  // namespace
}  // namespace tlt::train

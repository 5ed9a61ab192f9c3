// SPDX-License-Identifier: Apache-2.0
#include "drafter/shared_uniforms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace tlt::drafter {
namespace {

using Distribution = std::vector<double>;

std::vector<Considered> in_order(const Distribution& probabilities) {
  std::vector<Considered> all;
  double before = 0;
  for (const double p : probabilities) {
    all.push_back({.token = static_cast<int32_t>(all.size()),
                   .before = before,
                   .probability = p,
                   .untruncated = p});
    before += p;
  }
  return all;
}

Distribution random_distribution(RandomStream& random, size_t tokens) {
  Distribution distribution(tokens);
  double sum = 0;
  for (double& p : distribution) sum += p = std::exp(2 * random.normal());
  for (double& p : distribution) p /= sum;
  return distribution;
}

int32_t drawn(const Distribution& distribution, double number) {
  int32_t token = 0;
  for (double reached = 0; token + 1 < std::ssize(distribution); ++token)
    if ((reached += distribution[static_cast<size_t>(token)]) > number) break;
  return token;
}

TEST(SharedUniformsTest, IsEmptyAfterTheLastUniform) {
  const std::vector<double> numbers = {0.1, 0.2, 0.3};
  const SharedUniforms draws{.numbers = numbers, .rule = {.temperature = 0.5}};
  EXPECT_EQ(draws.after(2).numbers.front(), 0.3);
  EXPECT_EQ(draws.after(2).rule.temperature, 0.5);
  EXPECT_TRUE(draws.after(3).empty());
  EXPECT_TRUE(draws.after(9).empty());
}

TEST(SharedUniformsTest, ProbabilitiesStillSumToOne) {
  RandomStream random(/*seed=*/1, {});
  for (int round = 0; round < 1000; ++round) {
    std::vector<Considered> all = in_order(random_distribution(random, 1 + random.below(20)));
    const double number = round == 0 ? 0 : random.uniform();
    use_uniform(number, all);
    double sum = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      sum += all[i].probability;
      ASSERT_GE(all[i].probability, 0);
      ASSERT_LE(all[i].probability, all[i > 0 ? i - 1 : i].probability);
    }
    ASSERT_NEAR(sum, 1, 1e-9) << "round " << round;
  }
}

// Three equal tokens, and a uniform in the middle of one's share.
TEST(SharedUniformsTest, UniformDecidesBetweenEqualTokens) {
  for (const int32_t token : {0, 1, 2}) {
    std::vector<Considered> all = in_order({1.0 / 3, 1.0 / 3, 1.0 / 3});
    use_uniform((token + 0.5) / 3, all);
    EXPECT_EQ(all[0].token, token);
    EXPECT_GT(all[0].probability, 0.5);
  }
}

// The target's distribution is the drafter's with noise: the uniform raises the acceptance rate,
// and the probabilities predict it.
TEST(SharedUniformsTest, UniformsRaiseTheAcceptanceRate) {
  RandomStream random(/*seed=*/2, {});
  constexpr int kRounds = 20000;
  int blind = 0, knowing = 0;
  double claimed = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Distribution own = random_distribution(random, 6);
    // Every fifth time the drafter is entirely wrong.
    Distribution target = random_distribution(random, 6);
    if (round % 5 != 0) {
      double sum = 0;
      for (size_t i = 0; i < own.size(); ++i)
        sum += target[i] = own[i] * std::exp(0.4 * random.normal());
      for (double& p : target) p /= sum;
    }
    const double number = random.uniform();
    const int32_t token = drawn(target, number);
    blind += std::ranges::max_element(own) - own.begin() == token;
    std::vector<Considered> all = in_order(own);
    use_uniform(number, all);
    knowing += all[0].token == token;
    claimed += all[0].probability;
  }
  EXPECT_GT(knowing, blind * 1.15);
  EXPECT_NEAR(claimed / kRounds, static_cast<double>(knowing) / kRounds, 0.1);
}

// In falling order, truncated by top-k, top-p and min-p.
TEST(SharedUniformsTest, TruncatesByTopKTopPAndMinP) {
  const Distribution falling = {0.4, 0.3, 0.2, 0.06, 0.04};
  const auto expect = [&](const ops::SamplingRule& rule, const Distribution& want) {
    std::vector<Considered> all = in_order(falling);
    truncate(rule, all);
    double before = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_NEAR(all[i].probability, want[i], 1e-12) << i;
      EXPECT_NEAR(all[i].before, before, 1e-12) << i;
      before += want[i];
    }
  };
  expect({.top_k = 2}, {4.0 / 7, 3.0 / 7, 0, 0, 0});
  expect({.top_p = 0.75}, {4.0 / 9, 3.0 / 9, 2.0 / 9, 0, 0});
  expect({.min_p = 0.6}, {4.0 / 7, 3.0 / 7, 0, 0, 0});
  expect({.top_k = 3, .top_p = 0.7}, {4.0 / 7, 3.0 / 7, 0, 0, 0});
  expect({.top_k = 50}, falling);
  // The tokens have half of the probability, and top-p keeps 0.9 of all.
  std::vector<Considered> some = in_order({0.3, 0.2});
  truncate({.top_p = 0.9}, some);
  EXPECT_NEAR(some[0].probability, 1.0 / 3, 1e-12);
  EXPECT_NEAR(some[1].probability, 2.0 / 9, 1e-12);
}

TEST(SharedUniformsTest, NanProbabilitiesBecomeZero) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<Considered> all = in_order({nan, 0.5, nan, nan, 0.2});
  use_uniform(0.5, all);
  for (const Considered& one : all) EXPECT_GE(one.probability, 0);
}

}  // namespace
}  // namespace tlt::drafter

// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/eagle_top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "ops/sampling.h"

namespace tlt::drafter {
namespace {

struct Chosen {
  explicit Chosen(size_t k) : tokens(k), probabilities(k) {}
  std::vector<int32_t> tokens;
  std::vector<float> probabilities;
};

Chosen choose(const std::vector<float>& logits, size_t k) {
  static const Device device = Device::cpu(2);
  static TopKSoftmax top_k;
  Chosen chosen(k);
  const std::vector<TopK> rows = {{chosen.tokens, chosen.probabilities}};
  top_k.choose(device, logits, rows);
  return chosen;
}

// Reference: sorts everything, in double.
void expect_right(const std::vector<float>& logits, size_t k) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  std::ranges::stable_sort(ids, [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - logit(ids[0])));
  const Chosen got = choose(logits, k);
  for (size_t i = 0; i < k; ++i) {
    ASSERT_EQ(got.tokens[i], ids[i]) << "place " << i << " of " << k << " of " << logits.size();
    ASSERT_NEAR(got.probabilities[i], std::exp(logit(ids[i]) - logit(ids[0])) / sum, 1e-5);
  }
}

TEST(EagleTopKTest, MatchesSorting) {
  RandomStream random(/*seed=*/1, {});
  for (int round = 0; round < 2000; ++round) {
    const uint64_t longest = round % 100 == 0 ? 40000 : round % 10 == 0 ? 5000 : 300;
    std::vector<float> logits(1 + random.below(longest));
    // Multiples of a quarter, so that there are ties.
    for (float& x : logits) x = std::round(static_cast<float>(random.normal()) * 16) / 4;
    if (round % 3 == 0) std::ranges::sort(logits);
    const size_t k = 1 + random.below(std::min<size_t>(logits.size(), 20));
    expect_right(logits, k);
    if (HasFatalFailure()) return;
  }
}

TEST(EagleTopKTest, RowsMayHaveDifferentWidths) {
  constexpr size_t kColumns = 20000, kRows = 5;
  RandomStream random(/*seed=*/3, {});
  std::vector<float> logits(kRows * kColumns);
  for (float& x : logits) x = static_cast<float>(random.normal());
  std::vector<Chosen> chosen;
  for (size_t row = 0; row < kRows; ++row) chosen.emplace_back(1 + row);
  std::vector<TopK> rows;
  for (Chosen& row : chosen) rows.push_back({row.tokens, row.probabilities});
  TopKSoftmax().choose(Device::cpu(2), logits, rows);
  for (size_t row = 0; row < kRows; ++row) {
    const auto its = std::span(logits).subspan(row * kColumns, kColumns);
    const Chosen alone = choose({its.begin(), its.end()}, 1 + row);
    EXPECT_EQ(chosen[row].tokens, alone.tokens);
    EXPECT_EQ(chosen[row].probabilities, alone.probabilities);
  }
}

TEST(EagleTopKTest, OneTokenIsCertain) {
  const Chosen got = choose({-3.0f}, 1);
  EXPECT_EQ(got.tokens, std::vector<int32_t>{0});
  EXPECT_FLOAT_EQ(got.probabilities[0], 1);
}

// A draft model with NaN weights: any tokens, but all different and in the vocabulary.
TEST(EagleTopKTest, NanLogitsGiveDistinctTokens) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  RandomStream random(/*seed=*/2, {});
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(20 + random.below(200));
    for (float& x : logits)
      x = std::vector<float>{nan, -infinity, infinity,
                             1}[random.below(static_cast<uint64_t>(1 + round % 4))];
    Chosen got = choose(logits, 20);
    if (random.below(2) == 0) {
      const std::vector<double> numbers = {random.uniform()};
      TopKSoftmax().choose(Device::cpu(1), logits,
                           std::vector<TopK>{{got.tokens, got.probabilities, {numbers, {}}}});
    }
    EXPECT_EQ(std::set(got.tokens.begin(), got.tokens.end()).size(), 20);
    for (const int32_t token : got.tokens)
      EXPECT_TRUE(token >= 0 && token < std::ssize(logits)) << token;
  }
}

// NaNs do not hide other logits.
TEST(EagleTopKTest, FiniteLogitsAreFoundAmongNans) {
  std::vector<float> logits(256, std::numeric_limits<float>::quiet_NaN());
  for (const size_t place : {0, 1, 15, 16, 63, 64, 100, 191, 192, 255}) {
    std::vector<float> one = logits;
    one[place] = -2;
    EXPECT_EQ(choose(one, 3).tokens[0], static_cast<int32_t>(place));
  }
}

// Compared with a sum over the whole row in double, and with the token that the target would sample
// from these logits.
TEST(EagleTopKTest, UniformSelectsTheMostLikelyTokens) {
  RandomStream random(/*seed=*/4, {});
  TopKSoftmax top_k;
  const Device device = Device::cpu(2);
  const std::vector<ops::SamplingRule> rules = {
      {}, {.temperature = 0.5}, {.top_k = 4}, {.top_p = 0.8}, {.temperature = 1.5, .min_p = 0.1}};
  constexpr int kRounds = 1000;
  int right = 0, blind_right = 0;
  for (int round = 0; round < kRounds; ++round) {
    const ops::SamplingRule rule = rules[random.below(rules.size())];
    at::Tensor row =
        at::empty({1, static_cast<int64_t>(8 + random.below(round % 50 == 0 ? 20000 : 100))});
    const std::span logits(row.data_ptr<float>(), static_cast<size_t>(row.numel()));
    for (float& x : logits)
      x = static_cast<float>((logits.size() > 1000 ? 4 : 2) * random.normal());
    const std::vector<double> numbers = {random.uniform(), 0.5};
    Chosen chosen(3), blind(8);
    top_k.choose(device, logits,
                 std::vector<TopK>{{chosen.tokens, chosen.probabilities, {numbers, rule}}});
    top_k.choose(device, logits, std::vector<TopK>{{blind.tokens, blind.probabilities}});

    const double inverse = 1 / rule.temperature;
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x) * inverse);
    std::vector<Considered> slow;
    for (const int32_t token : blind.tokens) {
      const auto probability = [&](int32_t id) {
        return std::exp(static_cast<double>(logits[static_cast<size_t>(id)]) * inverse) / sum;
      };
      double before = 0;
      for (int32_t id = 0; id < token; ++id) before += probability(id);
      slow.push_back({token, before, probability(token), probability(token)});
    }
    if (rule.truncates()) truncate(rule, slow);
    use_uniform(numbers[0], slow);
    for (size_t i = 0; i < chosen.tokens.size(); ++i)
      ASSERT_NEAR(chosen.probabilities[i], slow[i].probability, 2e-4) << "round " << round;

    ops::Sampled sampled;
    ops::sample_rows(device, row, row.numel(),
                     std::vector<ops::SampleRow>{{.rule = rule, .uniform = numbers[0]}},
                     {&sampled, 1});
    right += chosen.tokens[0] == sampled.token;
    blind_right += blind.tokens[0] == sampled.token;
  }
  EXPECT_GT(right, blind_right * 3 / 2);
}

// Rows of several parts each, of which some have uniforms.
TEST(EagleTopKTest, RowsMayHaveUniformsOrNot) {
  constexpr size_t kColumns = 20000, kRows = 6;
  RandomStream random(/*seed=*/6, {});
  std::vector<float> logits(kRows * kColumns);
  for (float& x : logits) x = static_cast<float>(4 * random.normal());
  std::vector<double> numbers(kRows);
  std::vector<Chosen> chosen;
  std::vector<TopK> rows;
  for (size_t row = 0; row < kRows; ++row) chosen.emplace_back(1 + row);
  for (size_t row = 0; row < kRows; ++row) {
    numbers[row] = random.uniform();
    rows.push_back({chosen[row].tokens, chosen[row].probabilities, {}});
    if (row % 2 == 1)
      rows.back().draws = {std::span(numbers).subspan(row, 1),
                           {.temperature = 0.3 * static_cast<double>(row)}};
  }
  TopKSoftmax().choose(Device::cpu(2), logits, rows);
  for (size_t row = 0; row < kRows; ++row) {
    Chosen alone(1 + row);
    TopKSoftmax().choose(Device::cpu(1), std::span(logits).subspan(row * kColumns, kColumns),
                         std::vector<TopK>{{alone.tokens, alone.probabilities, rows[row].draws}});
    EXPECT_EQ(chosen[row].tokens, alone.tokens);
    EXPECT_EQ(chosen[row].probabilities, alone.probabilities);
  }
}

// The drafter orders tokens as the target does: with the target's own logits, the token whose share
// contains the uniform is the sampled one, for every truncation.
TEST(EagleTopKTest, MatchesTheTokenThatTheTargetSamples) {
  RandomStream random(/*seed=*/8, {});
  int compared = 0;
  for (int round = 0; round < 2000; ++round) {
    at::Tensor row = at::empty({8});
    for (int64_t i = 0; i < 8; ++i)
      row.data_ptr<float>()[i] = static_cast<float>(2 * random.normal());
    ops::SamplingRule rule{.temperature = 0.5 + random.uniform()};
    if (random.below(2) == 0) rule.top_k = static_cast<int64_t>(1 + random.below(7));
    if (random.below(2) == 0) rule.top_p = 0.3 + 0.6 * random.uniform();
    if (random.below(2) == 0) rule.min_p = 0.3 * random.uniform();
    if (!rule.truncates()) continue;
    const double number = random.uniform();
    ops::Sampled sampled;
    ops::sample_rows(Device::cpu(1), row.unsqueeze(0), 8,
                     std::vector<ops::SampleRow>{{.rule = rule, .uniform = number}}, {&sampled, 1});
    const at::Tensor p = at::softmax(row.to(at::kDouble) / rule.temperature, 0);
    std::vector<Considered> all;
    for (int32_t id = 0; id < 8; ++id) {
      const double own = p[id].item<double>();
      all.push_back({.token = id, .probability = own, .untruncated = own});
    }
    std::ranges::sort(all, std::greater<>(), &Considered::untruncated);
    truncate(rule, all);
    for (const Considered& one : all) {
      constexpr double kEdge = 1e-4;
      if (number < one.before + kEdge || number > one.before + one.probability - kEdge) continue;
      ASSERT_EQ(one.token, sampled.token) << "round " << round;
      ++compared;
    }
  }
  EXPECT_GT(compared, 1500);
}

TEST(EagleTopKTest, MoreTokensThanLogitsThrow) {
  EXPECT_THROW(choose({1, 2}, 3), Error);
  EXPECT_THROW(choose({1, 2}, 0), Error);
}

}  // namespace
}  // namespace tlt::drafter

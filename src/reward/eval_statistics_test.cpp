// SPDX-License-Identifier: Apache-2.0
#include "reward/eval_statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>

#include "base/random.h"

namespace tlt::reward {
namespace {

// The mean of `of` over all choices of k of n, by enumeration of all subsets.
double over_choices(size_t n, int64_t k,
                    const std::function<double(const std::vector<size_t>&)>& of) {
  double sum = 0, count = 0;
  for (uint32_t subset = 0; subset < (1U << n); ++subset) {
    if (std::popcount(subset) != static_cast<int>(k)) continue;
    std::vector<size_t> chosen;
    for (size_t i = 0; i < n; ++i)
      if (subset >> i & 1) chosen.push_back(i);
    sum += of(chosen);
    ++count;
  }
  return sum / count;
}

struct Table {
  std::vector<double> scores;
  std::vector<std::string> answers;
};

Table random_table(RandomStream& random, size_t n) {
  Table table;
  for (size_t i = 0; i < n; ++i) {
    table.scores.push_back(random.below(3) == 0 ? random.normal()
                                                : static_cast<double>(random.below(2)));
    const uint64_t answer = random.below(4);
    table.answers.push_back(answer == 0 ? "" : std::string(1, static_cast<char>('a' + answer)));
  }
  return table;
}

// A second implementation: counts the votes of each answer with loops.
double plain_majority(const Table& table, const std::vector<size_t>& chosen) {
  std::map<std::string, double> votes, sums;
  double all = 0, most = 0, winners = 0, sum = 0;
  for (const size_t i : chosen) {
    all += table.scores[i];
    if (table.answers[i].empty()) continue;
    votes[table.answers[i]] += 1;
    sums[table.answers[i]] += table.scores[i];
  }
  if (votes.empty()) return all / static_cast<double>(chosen.size());
  for (const auto& [answer, count] : votes) most = std::max(most, count);
  for (const auto& [answer, count] : votes)
    if (count == most) {
      sum += sums[answer] / count;
      ++winners;
    }
  return sum / winners;
}

TEST(EvalStatisticsTest, RandomTablesMatchAnEnumerationOfAllChoices) {
  RandomStream random(1, {});
  for (int round = 0; round < 1000; ++round) {
    const size_t n = 1 + random.below(8);
    const int64_t k = 1 + static_cast<int64_t>(random.below(n));
    const Table table = random_table(random, n);
    const auto passes = [&](size_t i) { return table.scores[i] >= 1; };
    int64_t passed = 0;
    for (size_t i = 0; i < n; ++i) passed += passes(i);
    EXPECT_NEAR(best_at_k(table.scores, k),
                over_choices(n, k,
                             [&](const auto& chosen) {
                               double best = -INFINITY;
                               for (const size_t i : chosen) best = std::max(best, table.scores[i]);
                               return best;
                             }),
                1e-12);
    EXPECT_NEAR(pass_at_k(static_cast<int64_t>(n), passed, k),
                over_choices(n, k,
                             [&](const auto& chosen) -> double {
                               return std::ranges::any_of(chosen, passes);
                             }),
                1e-12);
    EXPECT_NEAR(
        majority_at_k(table.scores, table.answers, k),
        over_choices(n, k, [&](const auto& chosen) { return plain_majority(table, chosen); }),
        1e-12);
  }
}

TEST(EvalStatisticsTest, ManySamplesDoNotOverflow) {
  EXPECT_NEAR(pass_at_k(10'000, 1, 1), 1e-4, 1e-15);
  EXPECT_NEAR(pass_at_k(10'000, 5'000, 100), 1, 1e-12);
  EXPECT_NEAR(pass_at_k(10'000, 10, 5'000), 1 - std::pow(0.5, 10), 1e-4);
  EXPECT_EQ(pass_at_k(10'000, 0, 10'000), 0);
  std::vector<double> scores(10'000);
  scores[17] = 1;
  EXPECT_NEAR(best_at_k(scores, 2'500), 0.25, 1e-12);
}

TEST(EvalStatisticsTest, MajorityOfManyChoicesIsEstimated) {
  RandomStream random(2, {});
  const Table table = random_table(random, 16);  // C(16, 8) is 12,870
  const double exact =
      over_choices(16, 8, [&](const auto& chosen) { return plain_majority(table, chosen); });
  EXPECT_NEAR(majority_at_k(table.scores, table.answers, 8), exact, 0.1);
  EXPECT_EQ(majority_at_k(table.scores, table.answers, 8),
            majority_at_k(table.scores, table.answers, 8));
}

TEST(EvalStatisticsTest, BootstrapIntervalIsThatOfTheMean) {
  RandomStream random(3, {});
  std::vector<double> values;
  for (int i = 0; i < 400; ++i) values.push_back(static_cast<double>(random.below(2)));
  const Estimate estimate = bootstrap_mean(values, 2000);
  const double error = std::sqrt(estimate.value * (1 - estimate.value) / 400);
  EXPECT_NEAR(estimate.low, estimate.value - 1.96 * error, 0.2 * error);
  EXPECT_NEAR(estimate.high, estimate.value + 1.96 * error, 0.2 * error);
  const Estimate without = bootstrap_mean(values, 0);
  EXPECT_EQ(without.low, without.value);
  EXPECT_EQ(without.value, estimate.value);
}

// About 95 % of the intervals of samples from a known distribution contain its mean.
TEST(EvalStatisticsTest, IntervalsCoverTheTrueMean) {
  RandomStream random(4, {});
  int covered = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<double> values;
    for (int i = 0; i < 60; ++i) values.push_back(random.normal());
    const Estimate estimate = bootstrap_mean(values, 300);
    covered += estimate.low <= 0 && 0 <= estimate.high;
  }
  EXPECT_GT(covered, 360);
  EXPECT_LT(covered, 396);
}

std::map<std::string, double> values_of(const std::vector<EvalStatistic>& statistics) {
  std::map<std::string, double> values;
  for (const EvalStatistic& one : statistics) values[one.metric()] = one.estimate.value;
  return values;
}

TEST(EvalStatisticsTest, NamesAreVerlsByDataSource) {
  const std::vector<PromptScores> prompts = {
      {"math", {1, 0, 0, 1}, {true, false, false, true}, {"7", "8", "9", "7"}},
      {"math", {0, 0, 0, 0}, {false, false, false, false}, {"", "1", "2", "2"}},
      {"", {1, 1, 1, 1}, {true, true, true, true}, {"", "", "", ""}}};
  const std::map<std::string, double> want = {
      {"val-core/math/reward/mean@4", 0.25},     {"val-aux/math/reward/std@4", 0.25},
      {"val-aux/math/acc/pass@1", 0.25},         {"val-aux/math/acc/pass@2", 5.0 / 12},
      {"val-core/math/acc/pass@4", 0.5},         {"val-aux/math/reward/best@2/mean", 5.0 / 12},
      {"val-core/math/reward/best@4/mean", 0.5}, {"val-core/math/reward/maj@4/mean", 0.5},
      {"val-aux/math/reward/maj@2/mean", 0.25},  {"val-core/unknown/reward/mean@4", 1},
      {"val-aux/unknown/reward/std@4", 0},       {"val-aux/unknown/acc/pass@1", 1},
      {"val-aux/unknown/acc/pass@2", 1},         {"val-core/unknown/acc/pass@4", 1},
      {"val-aux/unknown/reward/best@2/mean", 1}, {"val-core/unknown/reward/best@4/mean", 1}};
  const auto got = values_of(eval_statistics(prompts, 0));
  EXPECT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_NEAR(got.at(name), value, 1e-12) << name;
  }
}

TEST(EvalStatisticsTest, OneResponseHasItsMeanOnly) {
  const std::vector<PromptScores> prompts = {{"a", {1}, {true}, {"4"}}, {"a", {0}, {false}, {"5"}}};
  EXPECT_EQ(values_of(eval_statistics(prompts, 0)),
            (std::map<std::string, double>{{"val-core/a/reward/mean@1", 0.5}}));
}

}  // namespace
}  // namespace tlt::reward

// SPDX-License-Identifier: Apache-2.0
#include "train/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace tlt::train {
namespace {

std::vector<int64_t> random_lengths(RandomStream& random, uint64_t count) {
  std::vector<int64_t> lengths;
  for (uint64_t i = 0; i < count; ++i)
    lengths.push_back(1 + static_cast<int64_t>(random.below(120)));
  return lengths;
}

std::vector<double> costs_of(const std::vector<int64_t>& lengths) {
  std::vector<double> costs;
  for (const int64_t length : lengths) costs.push_back(cost_of_tokens(0, length));
  return costs;
}

int64_t tokens_of(const Pack& pack, const std::vector<int64_t>& lengths) {
  int64_t tokens = 0;
  for (const int64_t i : pack) tokens += lengths[static_cast<size_t>(i)];
  return tokens;
}

TEST(PackingTest, LongestGoesFirstIntoTheSmallestPack) {
  const std::vector<int64_t> lengths = {3, 7, 5, 2, 3};
  EXPECT_EQ(plan_packs(lengths, 10), (std::vector<Pack>{{1, 4}, {0, 2, 3}}));
  EXPECT_EQ(plan_packs(lengths, 9), (std::vector<Pack>{{1}, {2, 3}, {0, 4}}));
  EXPECT_EQ(plan_packs({}, 10), std::vector<Pack>{});
}

TEST(PackingTest, LargeBatchesMakeAMultipleOfEightPacks) {
  const std::vector<int64_t> lengths(300, 100);
  for (const auto& [budget, count] :
       {std::pair{100'000, 8}, {4'000, 8}, {3'000, 16}, {1'500, 24}}) {
    const auto packs = plan_packs(lengths, budget);
    EXPECT_EQ(std::ssize(packs), count) << budget;
    const auto [least, most] =
        std::minmax_element(packs.begin(), packs.end(),
                            [](const Pack& a, const Pack& b) { return a.size() < b.size(); });
    EXPECT_LE(most->size() - least->size(), 1u) << budget;
  }
}

TEST(PackingTest, EachSequenceIsInOnePackWithinTheBudget) {
  RandomStream random(1, {});
  for (int round = 0; round < 300; ++round) {
    const auto lengths = random_lengths(random, random.below(60));
    const int64_t budget = 1 + static_cast<int64_t>(random.below(300));
    std::vector<int64_t> seen;
    const auto packs = plan_packs(lengths, budget);
    for (size_t p = 0; p < packs.size(); ++p) {
      EXPECT_TRUE(std::is_sorted(packs[p].begin(), packs[p].end()));
      EXPECT_TRUE(packs[p].size() == 1 || tokens_of(packs[p], lengths) <= budget);
      seen.insert(seen.end(), packs[p].begin(), packs[p].end());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int64_t> all(lengths.size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all) << "round " << round;
  }
}

TEST(PackingTest, WorkersHaveEqualLoadsUpToOnePack) {
  RandomStream random(2, {});
  for (int round = 0; round < 200; ++round) {
    const auto lengths = random_lengths(random, 40);
    const auto packs = plan_packs(lengths, 130);
    const int workers = 1 + static_cast<int>(random.below(5));
    const auto owners = assign_packs(packs, costs_of(lengths), workers);
    std::vector<int64_t> load(static_cast<size_t>(workers));
    for (size_t p = 0; p < packs.size(); ++p)
      load.at(static_cast<size_t>(owners[p])) += tokens_of(packs[p], lengths);
    const auto [least, most] = std::minmax_element(load.begin(), load.end());
    EXPECT_LE(*most - *least, 140) << "round " << round;
  }
}

TEST(PackingTest, OfEqualWorkersTheFirstGetsThePack) {
  const std::vector<Pack> packs = {{0}, {1}, {2}, {3}, {4}};
  const std::vector<double> costs(5, 1.0);
  EXPECT_EQ(assign_packs(packs, costs, 3), (std::vector<int>{0, 1, 2, 0, 1}));
  EXPECT_EQ(assign_packs(packs, costs, 3, {2, 0.5, 0}), (std::vector<int>{2, 1, 2, 1, 0}));
}

TEST(PackingTest, LongSequenceCostsMoreThanManyShortOnes) {
  const std::vector<int64_t> lengths = {8192, 2048, 2048, 2048, 2048, 8192};
  const std::vector<Pack> packs = {{0}, {1, 2, 3, 4}, {5}};
  const std::vector<int> owners = assign_packs(packs, costs_of(lengths), 2);
  EXPECT_NE(owners[0], owners[2]);
}

TEST(PackingTest, EmptySequenceIsAnError) {
  const std::vector<int64_t> lengths = {3, 0};
  EXPECT_THROW(plan_packs(lengths, 10), Error);
}

}  // namespace
}  // namespace tlt::train

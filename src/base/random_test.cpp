// SPDX-License-Identifier: Apache-2.0
#include "base/random_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/check.h"

namespace tlt {
namespace {

using Words = std::array<uint32_t, 4>;

// Largest distance between the distribution of the values and the uniform one on [0, 1); exceeds
// 1.95 / sqrt(count) with probability 0.001.
double kolmogorov_distance(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double count = static_cast<double>(values.size());
  double distance = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double rank = static_cast<double>(i);
    distance = std::max({distance, values[i] - rank / count, (rank + 1) / count - values[i]});
  }
  return distance;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - 0.5) * (b[i] - 0.5) * 12;
  return sum / static_cast<double>(a.size());
}

// kat_vectors of Random123 1.09, "philox 4x32 10": counter, key, result.
TEST(RandomTest, PhiloxMatchesThePublishedVectors) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(0xffffffff'ffffffff, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0'a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, UniformDependsOnWholeCounterAndSeed) {
  const RandomCounter counter = {.step = 3, .prompt = 17, .sample = 1, .position = 41};
  std::set<double> numbers = {uniform(7, counter), uniform(8, counter),
                              uniform(uint64_t{7} << 32, counter)};
  for (uint32_t RandomCounter::*part : {&RandomCounter::step, &RandomCounter::prompt,
                                        &RandomCounter::sample, &RandomCounter::position}) {
    RandomCounter other = counter;
    ++(other.*part);
    numbers.insert(uniform(7, other));
    other.*part += uint32_t{1} << 31;
    numbers.insert(uniform(7, other));
  }
  EXPECT_EQ(numbers.size(), 11u);
  EXPECT_EQ(uniform(7, counter), uniform(7, counter));
}

TEST(RandomTest, UniformAlongEveryPartOfTheCounter) {
  constexpr uint32_t kCount = 20'000;
  for (uint32_t RandomCounter::*part : {&RandomCounter::step, &RandomCounter::prompt,
                                        &RandomCounter::sample, &RandomCounter::position}) {
    std::vector<double> values(kCount);
    for (uint32_t i = 0; i < kCount; ++i) {
      RandomCounter counter;
      counter.*part = i;
      values[i] = uniform(1, counter);
      ASSERT_TRUE(values[i] >= 0 && values[i] < 1) << values[i];
    }
    EXPECT_LT(kolmogorov_distance(values), 1.95 / std::sqrt(kCount));
  }
}

TEST(RandomTest, NeighbouringCountersAndSeedsAreIndependent) {
  constexpr uint32_t kCount = 20'000;
  const double kFourSigma = 4 / std::sqrt(double{kCount});
  std::vector<double> here(kCount), next(kCount), other_sample(kCount), other_seed(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    here[i] = uniform(5, {.prompt = 2, .position = i});
    next[i] = uniform(5, {.prompt = 2, .position = i + 1});
    other_sample[i] = uniform(5, {.prompt = 2, .sample = 1, .position = i});
    other_seed[i] = uniform(6, {.prompt = 2, .position = i});
  }
  EXPECT_LT(std::abs(correlation(here, next)), kFourSigma);
  EXPECT_LT(std::abs(correlation(here, other_sample)), kFourSigma);
  EXPECT_LT(std::abs(correlation(here, other_seed)), kFourSigma);
}

TEST(RandomTest, EveryBitIsUsed) {
  std::array<int, 53> ones{};
  constexpr uint32_t kCount = 4'000;
  for (uint32_t i = 0; i < kCount; ++i) {
    auto bits = static_cast<uint64_t>(std::ldexp(uniform(3, {.position = i}), 53));
    for (int bit = 0; bit < 53; ++bit, bits >>= 1) ones[static_cast<size_t>(bit)] += bits & 1;
  }
  for (size_t bit = 0; bit < 53; ++bit)
    EXPECT_NEAR(ones[bit], kCount / 2, 150) << "bit " << bit;  // 4.7 sigma
}

TEST(RandomStreamTest, MatchesUniformOfItsCounters) {
  RandomStream stream(9, {.step = 2, .position = 10});
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(stream.uniform(), uniform(9, {.step = 2, .position = 10 + i})) << i;
  }
}

TEST(RandomStreamTest, BelowIsUniformAndInRange) {
  RandomStream stream(4, {});
  for (const uint64_t limit : {1u, 2u, 3u, 7u, 100u}) {
    std::map<uint64_t, int> counts;
    const int draws = 2'000 * static_cast<int>(limit);
    for (int i = 0; i < draws; ++i) ++counts[stream.below(limit)];
    EXPECT_EQ(counts.size(), limit);
    EXPECT_LT(counts.rbegin()->first, limit);
    for (const auto& [value, count] : counts)
      EXPECT_NEAR(count, 2'000, 230) << value << " of " << limit;  // 5 sigma
  }
}

// The remainder of 2^64 by three quarters of 2^64 would give the lower third twice as often.
TEST(RandomStreamTest, BelowHasNoBiasForHugeLimits) {
  RandomStream stream(4, {});
  const uint64_t quarter = uint64_t{1} << 62;
  int low = 0;
  constexpr int kDraws = 9'000;
  for (int i = 0; i < kDraws; ++i) low += stream.below(3 * quarter) < quarter;
  EXPECT_NEAR(low, kDraws / 3, 220);  // 5 sigma; with the bias it is 4,500
}

TEST(RandomStreamTest, BelowZeroThrows) { EXPECT_THROW(RandomStream(1, {}).below(0), Error); }

TEST(RandomStreamTest, NormalHasTheMomentsOfTheStandardNormal) {
  RandomStream stream(11, {});
  constexpr int kCount = 40'000;
  double sum = 0, squares = 0, cubes = 0, fourth = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = stream.normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    cubes += x * x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.025);
  EXPECT_NEAR(squares / kCount, 1, 0.035);
  EXPECT_NEAR(cubes / kCount, 0, 0.1);
  EXPECT_NEAR(fourth / kCount, 3, 0.25);
}

TEST(RandomStreamTest, ShuffleIsAReproduciblePermutation) {
  std::vector<int> items(1'000), again;
  std::iota(items.begin(), items.end(), 0);
  again = items;
  const std::vector<int> ordered = items;
  RandomStream(2, {.step = 1}).shuffle(items);
  RandomStream(2, {.step = 1}).shuffle(again);
  EXPECT_EQ(items, again);
  EXPECT_NE(items, ordered);
  RandomStream(2, {.step = 2}).shuffle(again);
  EXPECT_NE(items, again);
  std::sort(items.begin(), items.end());
  EXPECT_EQ(items, ordered);
}

TEST(RandomStreamTest, ShuffleOfNoneOrOneChangesNothing) {
  std::vector<int> none, one = {5};
  RandomStream stream(1, {});
  stream.shuffle(none);
  stream.shuffle(one);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(one, std::vector<int>{5});
}

TEST(RandomStreamTest, ShuffleGivesEveryOrderEquallyOften) {
  std::map<std::vector<int>, int> orders;
  RandomStream stream(8, {});
  for (int i = 0; i < 24'000; ++i) {
    std::vector<int> items = {0, 1, 2, 3};
    stream.shuffle(items);
    ++orders[items];
  }
  EXPECT_EQ(orders.size(), 24u);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, 1'000, 160);  // 5 sigma
}

TEST(RandomTest, ABlockHasTheSameUniforms) {
  const RandomCounter first = {.step = 3, .prompt = 5, .sample = 7, .position = UINT32_MAX - 2};
  std::array<double, 6> block;
  fill_uniforms(11, first, block);
  RandomCounter next = first;
  for (const double it : block) {
    EXPECT_EQ(it, uniform(11, next));
    ++next.position;
  }
}

}  // namespace
}  // namespace tlt

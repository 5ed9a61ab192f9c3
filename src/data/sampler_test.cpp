// SPDX-License-Identifier: Apache-2.0
#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tlt::data {
namespace {

using Batch = std::vector<int64_t>;

Batch epoch_of(Sampler& sampler, int64_t size) {
  Batch all = sampler.next_batch(size);
  std::ranges::sort(all);
  return all;
}

TEST(SamplerTest, EveryEpochHasEveryPromptOnce) {
  Sampler sampler(100, /*shuffle=*/true, /*seed=*/1), again(100, true, 1), other(100, true, 2);
  Batch all(100);
  std::iota(all.begin(), all.end(), 0);
  const Batch first = sampler.next_batch(100), second = sampler.next_batch(100);
  EXPECT_NE(first, all);
  EXPECT_NE(first, second);
  EXPECT_EQ(again.next_batch(100), first);
  EXPECT_NE(other.next_batch(100), first);
  EXPECT_EQ(epoch_of(sampler, 100), all);
}

TEST(SamplerTest, WithoutShuffleTheOrderIsThatOfTheFiles) {
  Sampler sampler(5, /*shuffle=*/false, 1);
  EXPECT_EQ(sampler.next_batch(2), (Batch{0, 1}));
  EXPECT_EQ(sampler.next_batch(2), (Batch{2, 3}));
  EXPECT_EQ(sampler.next_batch(2), (Batch{0, 1}));  // 4 is dropped at the end of the epoch
  EXPECT_EQ(sampler.cursor(), (SamplerCursor{1, 2}));
  EXPECT_EQ(sampler.batches_per_epoch(2), 2);
}

TEST(SamplerTest, BatchMayEndTheEpoch) {
  Sampler sampler(4, /*shuffle=*/false, 1);
  EXPECT_EQ(sampler.next_batch(2), (Batch{0, 1}));
  EXPECT_EQ(sampler.next_batch(2), (Batch{2, 3}));
  EXPECT_EQ(sampler.cursor(), (SamplerCursor{0, 4}));
}

TEST(SamplerTest, BatchLargerThanTheDataIsAnError) {
  Sampler sampler(3, true, 1);
  EXPECT_THROW(sampler.next_batch(4), InputError);
  EXPECT_THROW(sampler.next_batch(0), InputError);
}

TEST(SamplerTest, RestoreResumesExactly) {
  for (int steps = 0; steps < 40; ++steps) {
    Sampler whole(17, true, 3), resumed(17, true, 3);
    for (int i = 0; i < steps; ++i) whole.next_batch(1 + i % 5);
    resumed.restore(whole.cursor());
    for (int i = 0; i < 10; ++i) ASSERT_EQ(resumed.next_batch(4), whole.next_batch(4)) << steps;
    ASSERT_EQ(resumed.cursor(), whole.cursor());
  }
}

TEST(SamplerTest, CursorOfOtherDataIsAnError) {
  Sampler sampler(17, true, 3);
  EXPECT_THROW(sampler.restore({0, 18}), InputError);
  EXPECT_THROW(sampler.restore({-1, 0}), InputError);
  sampler.restore({2, 17});
  EXPECT_EQ(sampler.next_batch(1).size(), 1U);
}

TEST(SamplerTest, PartsOfEqualWeightAreOneSet) {
  Sampler whole(30, /*shuffle=*/true, 4), parts({{10, 2.5}, {0, 2.5}, {20, 2.5}}, true, 4);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(whole.next_batch(10), parts.next_batch(10)) << i;
}

TEST(SamplerTest, PartOfHalfTheWeightTakesTwoEpochs) {
  for (const bool shuffle : {false, true}) {
    Sampler sampler({{4, 1}, {6, 0.5}, {5, 0}}, shuffle, 1);
    EXPECT_EQ(sampler.batches_per_epoch(1), 7);
    const Batch first = epoch_of(sampler, 7), second = epoch_of(sampler, 7);
    EXPECT_TRUE(std::ranges::includes(first, Batch{0, 1, 2, 3}));
    Batch both = first;
    both.insert(both.end(), second.begin(), second.end());
    std::ranges::sort(both);
    EXPECT_EQ(both, (Batch{0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9})) << shuffle;
    EXPECT_EQ(epoch_of(sampler, 7), first) << "its order is the same each time round";
  }
}

TEST(SamplerTest, WeightedPartsResumeFromACursor) {
  const std::vector<SamplerPart> parts = {{40, 1}, {33, 0.3}};
  Sampler sampler(parts, /*shuffle=*/true, 9), resumed(parts, true, 9);
  for (int i = 0; i < 9; ++i) sampler.next_batch(8);
  resumed.restore(sampler.cursor());
  for (int i = 0; i < 9; ++i) EXPECT_EQ(sampler.next_batch(8), resumed.next_batch(8)) << i;
}

TEST(SamplerTest, WeightOnEmptyPartsIsAnError) {
  EXPECT_THROW(Sampler({{0, 1}, {5, 0}}, true, 1), InputError);
}

}  // namespace
}  // namespace tlt::data

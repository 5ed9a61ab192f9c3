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

TEST(SamplerTest, EveryEpochHasEveryPromptOnceInItsOwnOrder) {
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
  EXPECT_EQ(sampler.next_batch(2), (Batch{0, 1}));  // 4 is dropped with the end of the epoch
  EXPECT_EQ(sampler.cursor(), (SamplerCursor{1, 2}));
  EXPECT_EQ(sampler.batches_per_epoch(2), 2);
}

TEST(SamplerTest, ABatchMayEndTheEpoch) {
  Sampler sampler(4, /*shuffle=*/false, 1);
  EXPECT_EQ(sampler.next_batch(2), (Batch{0, 1}));
  EXPECT_EQ(sampler.next_batch(2), (Batch{2, 3}));
  EXPECT_EQ(sampler.cursor(), (SamplerCursor{0, 4}));
}

TEST(SamplerTest, ABatchLargerThanTheDataIsRefused) {
  Sampler sampler(3, true, 1);
  EXPECT_THROW(sampler.next_batch(4), InputError);
  EXPECT_THROW(sampler.next_batch(0), InputError);
}

TEST(SamplerTest, RestoreGoesOnExactly) {
  for (int steps = 0; steps < 40; ++steps) {
    Sampler whole(17, true, 3), resumed(17, true, 3);
    for (int i = 0; i < steps; ++i) whole.next_batch(1 + i % 5);
    resumed.restore(whole.cursor());
    for (int i = 0; i < 10; ++i) ASSERT_EQ(resumed.next_batch(4), whole.next_batch(4)) << steps;
    ASSERT_EQ(resumed.cursor(), whole.cursor());
  }
}

TEST(SamplerTest, ACursorOfOtherDataIsRefused) {
  Sampler sampler(17, true, 3);
  EXPECT_THROW(sampler.restore({0, 18}), InputError);
  EXPECT_THROW(sampler.restore({-1, 0}), InputError);
  sampler.restore({2, 17});
  EXPECT_EQ(sampler.next_batch(1).size(), 1U);
}

}  // namespace
}  // namespace tlt::data

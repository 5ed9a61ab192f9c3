// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/part_times.h"

#include <gtest/gtest.h>

namespace tlt::drafter_training {
namespace {

TEST(PartTimesTest, TimesAreUnknownBeforeTheFirstPart) {
  const PartTimes times;
  EXPECT_FALSE(times.knows_packs());
  EXPECT_EQ(times.pack_seconds(100), 0);
  EXPECT_EQ(times.update_seconds(), 0);
}

TEST(PartTimesTest, PackIsNotPredictedShorterThanTheLastOne) {
  PartTimes times;
  times.add_pack(100, 0.02);
  EXPECT_TRUE(times.knows_packs());
  EXPECT_DOUBLE_EQ(times.pack_seconds(10), 0.02);
  EXPECT_DOUBLE_EQ(times.pack_seconds(200), 0.04);
  EXPECT_EQ(times.tokens_within(0.0101), 50);
}

// A slice of 50 ms took 82 ms: after parts of 2 ms another such part was predicted, but a pack of
// 25 ms followed.
TEST(PartTimesTest, UpdateTimesDoNotAffectPackTimes) {
  PartTimes times;
  times.add_pack(100, 0.02);
  times.add_update(0.002);
  EXPECT_DOUBLE_EQ(times.update_seconds(), 0.002);
  EXPECT_DOUBLE_EQ(times.pack_seconds(100), 0.02);
}

TEST(PartTimesTest, NewestPackHasAFifthOfTheWeight) {
  PartTimes times;
  times.add_pack(100, 0.1);
  times.add_pack(100, 0.2);
  times.add_pack(1, 0.0012);
  EXPECT_NEAR(times.pack_seconds(1000), 1000 * 0.0012, 1e-9);
}

}  // namespace
}  // namespace tlt::drafter_training

// SPDX-License-Identifier: Apache-2.0
#include "run/report/speedup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tlt::run {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SpeedupTest, IntervalIsBetweenOrderStatistics) {
  EXPECT_FALSE(median_interval({1, 2, 3, 4}));
  const auto five = median_interval({5, 1, 3, 2, 4});  // coverage 15/16
  ASSERT_TRUE(five);
  EXPECT_EQ(five->median, 3);
  EXPECT_EQ(five->low, 1);
  EXPECT_EQ(five->high, 5);
  const auto nine = median_interval({9, 8, 7, 6, 5, 4, 3, 2, 1});  // coverage of [2, 8]: 0.961
  EXPECT_EQ(nine->median, 5);
  EXPECT_EQ(nine->low, 2);
  EXPECT_EQ(nine->high, 8);
  EXPECT_EQ(median_interval({1, 2, 3, 4, 5, 6})->median, 3.5);
}

TEST(SpeedupTest, DescribesEachSize) {
  EXPECT_THAT(describe_speedup({{1, {1.2, 1.25, 1.22, 1.3, 1.24}, 0.9, 0.001},
                                {2, {0.99, 1.01, 1.2, 1.1, 1.05}, 0.8, 0.0015},
                                {4, {1.2, 1.3}, 0.5, 0.002},
                                {8, {1, 1, 1, 1, 1}, 0, 0.007}}),
              ElementsAre("1.24x (1.20-1.30) with 1 running sequences",
                          "not measurable with 2 or 4 running sequences: within the noise",
                          "none with 8 running sequences: the tuner turns speculation off there",
                          "a forward pass for 8 sequences takes 7.0x as long as for 1: "
                          "compute-bound"));
  EXPECT_THAT(describe_speedup({}), IsEmpty());
}

TEST(SpeedupTest, DescribesASlowdown) {
  EXPECT_THAT(describe_speedup({{1, {0.8, 0.81, 0.82, 0.83, 0.84}, 1, 0.001}}),
              ElementsAre("0.82x (0.80-0.84) with 1 running sequences"));
}

}  // namespace
}  // namespace tlt::run

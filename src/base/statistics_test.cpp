// SPDX-License-Identifier: Apache-2.0
#include "base/statistics.h"

#include <gtest/gtest.h>

namespace tlt {
namespace {

TEST(StatisticsTest, PercentileIsTheNearestRank) {
  const std::vector<double> values = {5, 1, 4, 2, 3};
  EXPECT_EQ(percentile(values, 0.5), 3);
  EXPECT_EQ(percentile(values, 0.99), 5);
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile(std::vector{7.0}, 0.9), 7);
}

}  // namespace
}  // namespace tlt

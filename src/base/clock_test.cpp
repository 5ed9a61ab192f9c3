// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <gtest/gtest.h>

namespace tlt {
namespace {

TEST(ClockTest, SteadyClockNeverDecreases) {
  double last = steady_clock().seconds();
  for (int i = 0; i < 1'000; ++i) {
    const double now = steady_clock().seconds();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(ClockTest, WallClockIsInThisCentury) {
  EXPECT_GT(wall_seconds(), 1.6e9);
  EXPECT_LT(wall_seconds(), 4.2e9);
}

TEST(ClockTest, FakeClockAdvancesOnlyWhenTold) {
  FakeClock clock(10);
  EXPECT_EQ(clock.seconds(), 10);
  EXPECT_EQ(clock.seconds(), 10);
  clock.advance(2.5);
  EXPECT_EQ(clock.seconds(), 12.5);
  EXPECT_THROW(clock.advance(-1), Error);
}

TEST(StopwatchTest, ShowsTheTimeSinceItWasStarted) {
  FakeClock clock(100);
  Stopwatch stopwatch(clock);
  EXPECT_EQ(stopwatch.seconds(), 0);
  clock.advance(3);
  EXPECT_EQ(stopwatch.seconds(), 3);
  EXPECT_EQ(stopwatch.restart(), 3);
  clock.advance(1);
  EXPECT_EQ(stopwatch.seconds(), 1);
}

}  // namespace
}  // namespace tlt

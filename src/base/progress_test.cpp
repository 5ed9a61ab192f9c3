// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"

namespace tlt {
namespace {

using testing::MatchesRegex;

TEST(ProgressTest, LineSaysShareRateAndTimeLeft) {
  FakeClock clock;
  Progress progress("rollout", 512, 1e9, clock);
  EXPECT_EQ(progress.line(), "rollout 0/512 (0%)");
  clock.advance(4);
  progress.advance(128);
  EXPECT_EQ(progress.line("18.2 tokens/s"), "rollout 128/512 (25%) 32/s, ETA 0:12; 18.2 tokens/s");
  progress.advance(384);
  EXPECT_EQ(progress.line(), "rollout 512/512 (100%) 128/s");
}

TEST(ProgressTest, WhatWasDoneBeforeSaysNothingOfTheRate) {
  FakeClock clock;
  Progress progress("step", 100, 1e9, clock);
  progress.start_at(60);
  clock.advance(4);
  EXPECT_EQ(progress.line(), "step 60/100 (60%)");
  progress.advance(20);
  EXPECT_EQ(progress.line(), "step 80/100 (80%) 5/s, ETA 0:04");
}

TEST(ProgressTest, NothingToDoIsDone) {
  FakeClock clock;
  EXPECT_EQ(Progress("save", 0, 1, clock).line(), "save 0/0");
}

TEST(ProgressTest, OffATerminalALineIsLoggedAtMostOnceAnInterval) {
  set_log_is_terminal(false);
  testing::internal::CaptureStderr();
  {
    FakeClock clock;
    Progress progress("eval", 100, /*interval_seconds=*/10, clock);
    for (int i = 0; i < 50; ++i) {
      clock.advance(0.5);
      progress.advance(1);
    }
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              MatchesRegex("[^\n]* I eval 20/100 .20%. 2/s, ETA 0:40\n[^\n]* I eval 40/100 .40%. "
                           "2/s, ETA 0:30\n"));
}

TEST(ProgressTest, OnATerminalTheLineIsDrawnInPlaceAndTakenAway) {
  set_log_is_terminal(true);
  testing::internal::CaptureStderr();
  {
    FakeClock clock;
    Progress progress("eval", 100, 10, clock);
    progress.advance(1);  // too soon
    clock.advance(0.2);
    progress.advance(1);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "\r\033[Keval 2/100 (2%) 10/s, ETA 0:10\r\033[K");
  set_log_is_terminal(false);
}

TEST(ProgressTest, TerminalOnlyLeavesNothingInALog) {
  set_log_is_terminal(false);
  testing::internal::CaptureStderr();
  {
    FakeClock clock;
    Progress progress("rollout", 100, Progress::kTerminalOnly, clock);
    clock.advance(1e9);
    EXPECT_FALSE(progress.is_due());
    progress.advance(50);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ProgressTest, WhatIsExpectedMayGrow) {
  FakeClock clock;
  Progress progress("rollout", 4, 1, clock);
  progress.expect(8);
  progress.expect(6);
  EXPECT_EQ(progress.line(), "rollout 0/8 (0%)");
}

TEST(ProgressTest, DurationsReadAsAClock) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(75), "1:15");
  EXPECT_EQ(format_duration(3675), "1:01:15");
  EXPECT_EQ(format_duration(360000), "100:00:00");
}

}  // namespace
}  // namespace tlt

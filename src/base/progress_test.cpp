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
  EXPECT_EQ(progress.line("18.2 tokens/s"), "rollout 128/512 (25%) 32/s, 0:12 left; 18.2 tokens/s");
  progress.advance(384);
  EXPECT_EQ(progress.line(), "rollout 512/512 (100%) 128/s");
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
              MatchesRegex("[^\n]* I eval 20/100 .20%. 2/s, 0:40 left\n[^\n]* I eval 40/100 .40%. "
                           "2/s, 0:30 left\n"));
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
            "\r\033[Keval 2/100 (2%) 10/s, 0:10 left\r\033[K");
  set_log_is_terminal(false);
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

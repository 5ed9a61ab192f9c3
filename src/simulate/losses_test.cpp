// SPDX-License-Identifier: Apache-2.0
#include "simulate/losses.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"

namespace tlt::simulate {
namespace {

TEST(LossScheduleTest, GivenLossesComeInOrderOfTime) {
  SimulateOptions options;
  options.workers = 6;
  options.lost_workers = {"5@600", "3@120.5", "1@120.5"};
  LossSchedule losses(options);
  EXPECT_FALSE(losses.try_next(120));
  for (const int64_t worker : {1, 3, 5}) EXPECT_EQ(losses.try_next(1000)->worker, worker);
  EXPECT_FALSE(losses.try_next(1e12));
  EXPECT_TRUE(std::isinf(losses.next_at()));
}

TEST(LossScheduleTest, RandomLossesHaveTheRate) {
  SimulateOptions options;
  options.workers = 100;
  options.losses_per_worker_day = 2;
  LossSchedule losses(options);
  constexpr double kDays = 50;
  int64_t count = 0, of_first = 0;
  double before = 0;
  while (const auto loss = losses.try_next(kDays * 86400)) {
    EXPECT_GE(loss->at, before);
    before = loss->at;
    ++count;
    of_first += loss->worker == 0;
  }
  // A Poisson number of mean 10,000 and one of mean 100.
  EXPECT_NEAR(static_cast<double>(count), 10'000, 4 * std::sqrt(10'000.0));
  EXPECT_NEAR(static_cast<double>(of_first), 100, 4 * std::sqrt(100.0));
}

TEST(LossScheduleTest, WrongLossesAreInputErrors) {
  SimulateOptions options;
  for (const char* text : {"", "3", "3@", "@5", "3@-1", "3@5s", "3@nan", "x@5", "8@5", "-1@5"}) {
    options.lost_workers = {text};
    EXPECT_THROW(LossSchedule{options}, InputError) << text;
  }
}

}  // namespace
}  // namespace tlt::simulate

// SPDX-License-Identifier: Apache-2.0
#include "simulate/score_queue.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/random.h"

namespace tlt::simulate {
namespace {

TEST(ScoreQueueTest, WithoutALimitNothingWaits) {
  ScoreQueue queue(3, 0);
  for (const double now : {0.0, 0.0, 1.0}) EXPECT_EQ(queue.scored_at(now), now + 3);
  EXPECT_EQ(queue.last(), 4);
  queue.begin_step();
  EXPECT_EQ(queue.last(), 0);
}

TEST(ScoreQueueTest, FirstComeFirstServed) {
  ScoreQueue queue(3, 2);
  EXPECT_EQ(queue.scored_at(0), 3);
  EXPECT_EQ(queue.scored_at(1), 4);
  EXPECT_EQ(queue.scored_at(1), 6);    // after the first one
  EXPECT_EQ(queue.scored_at(10), 13);  // idle before
}

// M/D/1: with arrivals at random and utilization u the mean wait is u / (2 (1 - u)) services.
TEST(ScoreQueueTest, RandomArrivalsWaitAsInMD1) {
  for (const double utilization : {0.3, 0.7}) {
    ScoreQueue queue(1, 1);
    double now = 0, waited = 0;
    constexpr uint32_t kResponses = 200'000;
    for (uint32_t i = 0; i < kResponses; ++i) {
      now -= std::log1p(-uniform(1, {.position = i})) / utilization;
      waited += queue.scored_at(now) - now - 1;
    }
    const double expected = utilization / (2 * (1 - utilization));
    EXPECT_NEAR(waited / kResponses, expected, 0.03 * expected) << utilization;
  }
}

}  // namespace
}  // namespace tlt::simulate

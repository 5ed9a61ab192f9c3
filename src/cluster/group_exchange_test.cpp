// SPDX-License-Identifier: Apache-2.0
#include "cluster/group_exchange.h"

#include <gtest/gtest.h>

namespace tlt::cluster {
namespace {

using Match = GroupExchange::Match;

TEST(GroupExchangeTest, TheWorkerWithTheMostIsAskedOnceForEachGroup) {
  GroupExchange exchange(4);
  exchange.offer(0, 1);
  exchange.offer(2, 2);
  EXPECT_EQ(exchange.next_match(), std::nullopt) << "no worker wants one";
  exchange.want(1);
  exchange.want(3);
  EXPECT_EQ(exchange.next_match(), (Match{.from = 2, .to = 1}));
  EXPECT_EQ(exchange.next_match(), (Match{.from = 0, .to = 3}));
  exchange.want(1);
  EXPECT_EQ(exchange.next_match(), std::nullopt) << "it has been promised one";
  exchange.handed_over(2, 1, /*has_group=*/true);
  EXPECT_EQ(exchange.next_match(), (Match{.from = 2, .to = 1}));
  exchange.handed_over(2, 1, /*has_group=*/true);
  exchange.want(1);
  EXPECT_EQ(exchange.next_match(), std::nullopt) << "none are left";
}

TEST(GroupExchangeTest, AWorkerDoesNotGetItsOwn) {
  GroupExchange exchange(2);
  exchange.offer(0, 3);
  exchange.want(0);
  EXPECT_EQ(exchange.next_match(), std::nullopt);
}

TEST(GroupExchangeTest, AnEmptyAnswerIsAskedOfAnother) {
  GroupExchange exchange(3);
  exchange.offer(0, 5);
  exchange.offer(1, 1);
  exchange.want(2);
  EXPECT_EQ(exchange.next_match(), (Match{.from = 0, .to = 2}));
  exchange.handed_over(0, 2, /*has_group=*/false);
  EXPECT_EQ(exchange.next_match(), (Match{.from = 1, .to = 2}));
}

TEST(GroupExchangeTest, WorkersThatHaveOtherWorkAreNotServed) {
  GroupExchange exchange(2);
  exchange.want(1);
  exchange.end_want(1);
  exchange.offer(0, 1);
  EXPECT_EQ(exchange.next_match(), std::nullopt);
  exchange.want(1);
  exchange.begin_step();
  EXPECT_EQ(exchange.next_match(), std::nullopt) << "of the step before";
}

TEST(GroupExchangeTest, NoOtherIsAskedForAWorkerThatHasOtherWorkByThen) {
  GroupExchange exchange(4);
  exchange.offer(0, 2);
  exchange.offer(1, 1);
  exchange.want(2);
  exchange.want(3);
  EXPECT_EQ(exchange.next_match(), (Match{.from = 0, .to = 2}));
  EXPECT_EQ(exchange.next_match(), (Match{.from = 0, .to = 3}));
  exchange.end_want(2);
  exchange.end_want(3);
  exchange.handed_over(0, 2, /*has_group=*/false);
  EXPECT_EQ(exchange.next_match(), std::nullopt);
  exchange.lose(0);
  EXPECT_EQ(exchange.next_match(), std::nullopt);
  exchange.want(2);
  EXPECT_EQ(exchange.next_match(), (Match{.from = 1, .to = 2}));
}

TEST(GroupExchangeTest, AnotherIsAskedWhenAWorkerIsLost) {
  GroupExchange exchange(3);
  exchange.offer(0, 5);
  exchange.offer(1, 1);
  exchange.want(2);
  EXPECT_EQ(exchange.next_match(), (Match{.from = 0, .to = 2}));
  exchange.lose(0);
  EXPECT_EQ(exchange.next_match(), (Match{.from = 1, .to = 2}));
  exchange.handed_over(0, 2, /*has_group=*/false);  // late
  exchange.offer(0, 0);
  EXPECT_EQ(exchange.next_match(), std::nullopt);
}

}  // namespace
}  // namespace tlt::cluster

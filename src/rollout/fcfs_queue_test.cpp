// SPDX-License-Identifier: Apache-2.0
#include "rollout/fcfs_queue.h"

#include <gtest/gtest.h>

namespace tlt::rollout {
namespace {

constexpr auto kFits = [](int) { return true; };
constexpr auto kFitsNot = [](int) { return false; };

FcfsQueue<int> queue_of(int sequences) {
  FcfsQueue<int> queue;
  for (int i = 0; i < sequences; ++i) queue.push(i);
  return queue;
}

std::vector<int> in_order(FcfsQueue<int> queue) { return queue.take_all(); }

TEST(FcfsQueueTest, AdmitsTheOldestUpToTheLimit) {
  FcfsQueue<int> queue = queue_of(5);
  queue.admit(3, kFits);
  EXPECT_EQ(queue.running().size(), 3U);
  EXPECT_EQ(queue.running().back(), 2);
  EXPECT_EQ(queue.waiting().front(), 3);
}

TEST(FcfsQueueTest, NoneOvertakesOneThatDoesNotFit) {
  FcfsQueue<int> queue = queue_of(4);
  queue.admit(4, [](int sequence) { return sequence != 2; });
  EXPECT_EQ(queue.running().size(), 2U);
  EXPECT_EQ(queue.waiting().size(), 2U);
}

TEST(FcfsQueueTest, OneAloneIsAdmittedInAnyCase) {
  FcfsQueue<int> queue = queue_of(2);
  queue.admit(2, kFitsNot);
  ASSERT_EQ(queue.running().size(), 1U);
  EXPECT_EQ(queue.running().front(), 0);
}

TEST(FcfsQueueTest, PreemptedOnesKeepTheirPlace) {
  FcfsQueue<int> queue = queue_of(4);
  queue.admit(3, kFits);
  EXPECT_EQ(queue.preempt_youngest(), 2);
  EXPECT_EQ(queue.preempt_youngest(), 1);
  queue.push(4);
  EXPECT_EQ(in_order(queue), (std::vector{0, 1, 2, 3, 4}));
  queue.admit(3, kFits);
  EXPECT_EQ(queue.running().back(), 2);
}

TEST(FcfsQueueTest, HasNoFreeSlotsWhileOneWaitsForMemory) {
  FcfsQueue<int> queue = queue_of(3);
  EXPECT_EQ(queue.free_slots(8), 5);  // all could start with the next step
  queue.admit(8, [](int sequence) { return sequence < 1; });
  EXPECT_EQ(queue.free_slots(8), 0);
  queue.admit(8, kFits);
  EXPECT_EQ(queue.free_slots(8), 5);
  EXPECT_EQ(queue.free_slots(2), 0);
  queue.erase_running_if([](int sequence) { return sequence > 0; });
  EXPECT_EQ(queue.free_slots(8), 7);
  queue = queue_of(3);
  queue.admit(8, kFitsNot);
  EXPECT_EQ(queue.free_slots(8), 0);
  EXPECT_EQ(queue.take_all().size(), 3U);
  EXPECT_EQ(queue.free_slots(8), 8);
}

}  // namespace
}  // namespace tlt::rollout

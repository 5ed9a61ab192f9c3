// SPDX-License-Identifier: Apache-2.0
#include "tinker/work_queue.h"

#include <gtest/gtest.h>

#include <future>

#include "serve/api_error.h"

namespace tlt::tinker {
namespace {

class WorkQueueTest : public ::testing::Test {
 protected:
  Job job(int number) {
    return {.run =
                [this, number] {
                  const std::lock_guard lock(mutex_);
                  seen_ += std::to_string(number) + " ";
                },
            .fail =
                [this, number](const std::string&) {
                  const std::lock_guard lock(mutex_);
                  seen_ += "-" + std::to_string(number) + " ";
                },
            .bytes = 1};
  }
  // What has been done when everything before this call is.
  std::string seen() {
    std::promise<void> done;
    queue_.push({.run = [&] { done.set_value(); }, .fail = [](const std::string&) {}});
    done.get_future().wait();
    const std::lock_guard lock(mutex_);
    return seen_;
  }

  std::mutex mutex_;
  std::string seen_;
  WorkQueue queue_;
};

TEST_F(WorkQueueTest, JobsOfAModelRunInTheOrderOfTheirSequenceIds) {
  queue_.begin_model("a");
  queue_.push_in_order("a", 3, job(3));
  queue_.push_in_order("a", 2, job(2));
  queue_.push(job(100));
  EXPECT_EQ(seen(), "100 ");
  EXPECT_EQ(queue_.next_id("a"), 4);
  queue_.push_in_order("a", 1, job(1));
  EXPECT_EQ(seen(), "100 1 2 3 ");
  EXPECT_THROW(queue_.push_in_order("a", 2, job(2)), serve::ApiError);
  EXPECT_THROW(queue_.push_in_order("b", 4, job(4)), serve::ApiError);
  EXPECT_THROW(queue_.push_in_order("a", 1'000'000, job(4)), serve::ApiError);
}

TEST_F(WorkQueueTest, WhatWaitsForAnotherFailsWithItsModel) {
  queue_.begin_model("a");
  queue_.push_in_order("a", 5, job(5));
  queue_.begin_model("b");
  EXPECT_EQ(seen(), "-5 ");
  queue_.push_in_order("b", 1, job(1));
  queue_.push_in_order("b", 7, job(7));
  EXPECT_EQ(seen(), "-5 1 ");
  queue_.close();
  EXPECT_EQ(seen_, "-5 1 -7 ");
  EXPECT_THROW(queue_.push(job(9)), serve::ApiError);
}

TEST_F(WorkQueueTest, WaitingBytesAreBounded) {
  Job large = job(1);
  large.bytes = size_t{200} << 20;
  queue_.begin_model("a");
  queue_.push_in_order("a", 2, large);
  EXPECT_THROW(queue_.push(large), serve::ApiError);
  queue_.end_model();
  queue_.push(large);
  EXPECT_EQ(seen(), "-1 1 ");
}

TEST_F(WorkQueueTest, WhatOthersWaitForHasRoom) {
  std::promise<void> done;
  Job first = job(1), second = job(2);
  first.bytes = size_t{300} << 20;
  second.bytes = size_t{200} << 20;
  second.run = [&] { done.set_value(); };
  queue_.begin_model("a");
  queue_.push_in_order("a", 2, second);
  EXPECT_THROW(queue_.push_in_order("a", 3, second), serve::ApiError);
  queue_.push_in_order("a", 1, first);
  done.get_future().wait();
  EXPECT_EQ(seen(), "1 ");
}

}  // namespace
}  // namespace tlt::tinker

// SPDX-License-Identifier: Apache-2.0
#include "base/background_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <vector>

#include "base/check.h"
#include "tests/support/test_folder.h"

namespace tlt {
namespace {

using testing::HasSubstr;

TEST(BackgroundWriterTest, JobsRunInOrderOnAnotherThread) {
  std::vector<int> order;
  std::thread::id thread;
  BackgroundWriter writer;
  for (int i = 0; i < 100; ++i) {
    writer.push([&, i] {
      order.push_back(i);
      thread = std::this_thread::get_id();
    });
  }
  while (writer.jobs() > 0) std::this_thread::yield();
  writer.drain();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_EQ(writer.jobs(), 0u);
}

TEST(BackgroundWriterTest, PushWaitsWhenTheQueueIsFull) {
  BackgroundWriter writer(/*max_jobs=*/1);
  std::promise<void> gate, running;
  std::shared_future<void> open = gate.get_future();
  writer.push([&] {
    running.set_value();
    open.wait();
  });
  running.get_future().wait();
  writer.push([] {});  // one runs, one waits
  EXPECT_EQ(writer.jobs(), 2u);
  std::atomic<bool> pushed = false;
  std::thread third([&] {
    writer.push([] {});
    pushed = true;
  });
  EXPECT_FALSE(pushed);
  gate.set_value();
  third.join();
  writer.drain();
  EXPECT_TRUE(pushed);
}

TEST(BackgroundWriterTest, ErrorIsRethrownAndNoLaterJobRuns) {
  std::atomic<bool> later_ran = false;
  BackgroundWriter writer(/*max_jobs=*/3);
  std::promise<void> gate;
  writer.push([&] {
    gate.get_future().wait();
    throw InputError("disk full");
  });
  writer.push([&] { later_ran = true; });
  gate.set_value();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(thrown_message<InputError>([&] { writer.drain(); }), "disk full");
    EXPECT_EQ(thrown_message<InputError>([&] { writer.push([&] { later_ran = true; }); }),
              "disk full");
  }
  EXPECT_FALSE(later_ran);
}

TEST(BackgroundWriterTest, ErrorThatNoCallerReceivedIsLogged) {
  testing::internal::CaptureStderr();
  {
    BackgroundWriter writer;
    writer.push([] { throw Error("disk broken"); });
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("writing in the background failed: disk broken"));
}

TEST(BackgroundWriterTest, DestructorWaitsForAllJobs) {
  std::atomic<int> done = 0;
  {
    BackgroundWriter writer(5);
    for (int i = 0; i < 5; ++i) writer.push([&] { ++done; });
  }
  EXPECT_EQ(done, 5);
}

TEST(BackgroundWriterTest, MemoryOfAJobIsFreeAfterDrain) {
  auto state = std::make_shared<int>(1);
  BackgroundWriter writer;
  writer.push([copy = state] {});
  writer.drain();
  EXPECT_EQ(state.use_count(), 1);
}

TEST(BackgroundWriterTest, QueueWithoutSlotsThrows) { EXPECT_THROW(BackgroundWriter(0), Error); }

}  // namespace
}  // namespace tlt

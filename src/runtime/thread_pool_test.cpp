// SPDX-License-Identifier: Apache-2.0
#include "runtime/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

namespace tlt::runtime {
namespace {

TEST(ThreadPoolTest, EveryTaskRunsOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t tasks : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      pool.run(tasks, [&](int64_t task) { ++runs[static_cast<size_t>(task)]; });
      for (const auto& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPoolTest, ManySmallOperationsAllComplete) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum = 0;
  for (int round = 0; round < 5000; ++round) pool.run(8, [&](int64_t task) { sum += task; });
  EXPECT_EQ(sum, 5000 * 28);
}

TEST(ThreadPoolTest, MoreTasksThanBundlesInARound) {
  ThreadPool pool(3);
  const int64_t tasks = (int64_t{1} << 21) + 12345;
  std::vector<uint8_t> runs(static_cast<size_t>(tasks));
  pool.run(tasks, [&](int64_t task) { ++runs[static_cast<size_t>(task)]; });
  EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), tasks);
}

// Helpers arrive late for most rounds: the pool must not wait for them, and they must not touch the
// next round.
TEST(ThreadPoolTest, LateHelpersDoNotCorruptTheNextRound) {
  ThreadPool pool(8);
  std::vector<int64_t> runs(3);
  for (int64_t round = 0; round < 20000; ++round) {
    const int64_t tasks = 2 + round % 2;
    pool.run(tasks, [&](int64_t task) { runs[static_cast<size_t>(task)] += 1 + tasks; });
  }
  EXPECT_EQ(runs, (std::vector<int64_t>{70000, 70000, 40000}));
}

TEST(ThreadPoolTest, TaskExceptionIsRethrownAndPoolStaysUsable) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run(50,
                        [](int64_t task) {
                          if (task == 31) throw std::runtime_error("31");
                        }),
               std::runtime_error);
  std::atomic<int> runs = 0;
  pool.run(10, [&](int64_t) { ++runs; });
  EXPECT_EQ(runs, 10);
}

TEST(ThreadPoolTest, HelpersWakeUpAfterALongPause) {
  ThreadPool pool(2);
  std::atomic<int> runs = 0;
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // helpers sleep by now
    pool.run(4, [&](int64_t) { ++runs; });
  }
  EXPECT_EQ(runs, 12);
}

}  // namespace
}  // namespace tlt::runtime

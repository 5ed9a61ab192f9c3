// ThreadPool: runs the tasks of one operation on a fixed set of threads and waits for all of them.
//
// A decode step of a small model is a hundred operations of a few microseconds each, so starting
// one must cost less than a microsecond: idle threads spin for a short while before they sleep.
//
// Owns       threads - 1 threads; the calling thread is the last one.
// Threading  one caller at a time (the device's thread). run() does not nest.
// Results    which thread runs a task is not fixed, so a task must own what it writes.
//
//   pool.run(panels, [&](int64_t panel) { multiply(panel); });
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tlt::runtime {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls body(task) for every task in [0, tasks). The first exception of a task is rethrown here.
  template <class Body>
  void run(int64_t tasks, const Body& body) {
    if (tasks <= 0) return;
    if (tasks == 1 || helpers_.empty()) {
      for (int64_t task = 0; task < tasks; ++task) body(task);
      return;
    }
    run_shared(
        tasks,
        [](const void* context, int64_t task) { (*static_cast<const Body*>(context))(task); },
        &body);
  }

 private:
  using Call = void (*)(const void* context, int64_t task);

  void run_shared(int64_t tasks, Call call, const void* context);
  void work();
  void help();

  // The operation under way; written by run_shared before `round_` moves on.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  int64_t tasks_ = 0;
  std::atomic<int64_t> next_task_{0};
  std::atomic<int> busy_helpers_{0};
  std::exception_ptr failure_;
  std::mutex failure_mutex_;

  std::atomic<uint32_t> round_{0};  // helpers wait for it to change
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> helpers_;
};

}  // namespace tlt::runtime

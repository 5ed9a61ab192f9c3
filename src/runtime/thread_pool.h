// ThreadPool: runs the tasks of one operation on a fixed set of threads and waits for all of them.
//
// A decode step of a small model is about a hundred operations of a few microseconds each, so
// starting one must cost less than a microsecond: idle threads spin briefly before they sleep, and
// the pool does not wait for a thread that the system has descheduled.
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
  // Runs bundles of the round that `state` belongs to until none is left.
  void work(uint64_t state);
  void run_bundle(int64_t bundle);
  void help();

  // The state that starts a round is in one cache line: starting costs one transfer of that line.
  //
  // `state_` holds the round (32 bits), the number of bundles of tasks not taken yet (20) and the
  // number of busy threads (12). A thread takes a bundle and becomes busy in one atomic step, so a
  // helper that arrives late takes no part and is not waited for.
  alignas(64) std::atomic<uint64_t> state_{0};
  // The current operation: written before `state_` changes, read only by busy threads.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  int64_t tasks_ = 0;
  int64_t bundle_tasks_ = 1;
  int64_t bundles_ = 0;

  alignas(64) std::atomic<uint32_t> round_{0};  // sleeping helpers wait for it to change
  std::atomic<bool> stopping_{false};
  std::exception_ptr failure_;
  std::mutex failure_mutex_;
  std::vector<std::thread> helpers_;
};

}  // namespace tlt::runtime

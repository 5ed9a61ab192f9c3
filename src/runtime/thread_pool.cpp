// SPDX-License-Identifier: Apache-2.0
#include "runtime/thread_pool.h"

#include <utility>

#include "base/check.h"

namespace tlt::runtime {
namespace {

// About 50 microseconds: longer than the gap between two operations of a step, shorter than anybody
// minds.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  TLT_CHECK(threads >= 1, "threads ", threads);
  for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  ++round_;
  round_.notify_all();
  for (auto& helper : helpers_) helper.join();
}

void ThreadPool::run_shared(int64_t tasks, Call call, const void* context) {
  call_ = call;
  context_ = context;
  tasks_ = tasks;
  next_task_.store(0, std::memory_order_relaxed);
  busy_helpers_.store(static_cast<int>(helpers_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  work();
  // A helper that lost its core to another process would be waited for in vain by spinning.
  for (int spin = 0; busy_helpers_.load(std::memory_order_acquire) != 0; ++spin)
    spin < kSpins ? pause() : std::this_thread::yield();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work() {
  while (true) {
    const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) return;
    try {
      call_(context_, task);
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }
}

void ThreadPool::help() {
  uint32_t seen = 0;
  while (true) {
    for (int spin = 0; spin < kSpins && round_.load(std::memory_order_acquire) == seen; ++spin)
      pause();
    round_.wait(seen, std::memory_order_acquire);
    seen = round_.load(std::memory_order_acquire);
    if (stopping_) return;
    work();
    busy_helpers_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace tlt::runtime

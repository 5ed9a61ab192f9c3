// SPDX-License-Identifier: Apache-2.0
#include "runtime/thread_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tlt::runtime {
namespace {

// About 50 microseconds: longer than the gap between two operations of a step, short enough not to
// waste a core.
constexpr int kSpins = 2000;

constexpr int kBusyBits = 12, kBundleBits = 20;
constexpr uint64_t kOneBusy = 1, kOneBundle = uint64_t{1} << kBusyBits,
                   kOneRound = uint64_t{1} << (kBusyBits + kBundleBits);
constexpr int64_t kMostBundles = (int64_t{1} << kBundleBits) - 1;

uint32_t round_of(uint64_t state) { return static_cast<uint32_t>(state / kOneRound); }
uint64_t bundles_left(uint64_t state) { return state % kOneRound / kOneBundle; }
uint64_t busy(uint64_t state) { return state % kOneBundle; }

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  TLT_CHECK(threads >= 1 && threads < 1 << kBusyBits, "threads ", threads);
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
  bundle_tasks_ = (tasks + kMostBundles - 1) / kMostBundles;
  bundles_ = (tasks + bundle_tasks_ - 1) / bundle_tasks_;
  const uint64_t started =
      (round_of(state_.load(std::memory_order_relaxed)) + uint64_t{1}) * kOneRound +
      static_cast<uint64_t>(bundles_) * kOneBundle;
  state_.store(started, std::memory_order_release);
  round_.store(round_of(started), std::memory_order_seq_cst);
  round_.notify_all();
  work(started);
  // Then yield: a helper that lost its core to another process may need this one.
  for (int spin = 0; busy(state_.load(std::memory_order_acquire)) != 0; ++spin)
    spin < kSpins ? pause() : std::this_thread::yield();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work(uint64_t state) {
  const uint32_t round = round_of(state);
  const auto change = [&](uint64_t to) {
    return state_.compare_exchange_weak(state, to, std::memory_order_acq_rel,
                                        std::memory_order_acquire);
  };
  // Not busy yet: the round may end and the next one start at any moment.
  do {
    if (round_of(state) != round || bundles_left(state) == 0) return;
  } while (!change(state - kOneBundle + kOneBusy));
  while (true) {
    run_bundle(bundles_ - static_cast<int64_t>(bundles_left(state)));
    state = state_.load(std::memory_order_acquire);
    bool continues = false;
    do {
      continues = bundles_left(state) > 0;
    } while (!change(state - (continues ? kOneBundle : kOneBusy)));
    if (!continues) return;
  }
}

void ThreadPool::run_bundle(int64_t bundle) {
  const int64_t end = std::min(tasks_, (bundle + 1) * bundle_tasks_);
  for (int64_t task = bundle * bundle_tasks_; task < end; ++task) {
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
    uint64_t state = state_.load(std::memory_order_acquire);
    for (int spin = 0; spin < kSpins && round_of(state) == seen; ++spin) {
      pause();
      state = state_.load(std::memory_order_acquire);
    }
    if (round_of(state) == seen) round_.wait(seen, std::memory_order_acquire);
    if (stopping_) return;
    state = state_.load(std::memory_order_acquire);
    seen = round_of(state);
    work(state);
  }
}

}  // namespace tlt::runtime

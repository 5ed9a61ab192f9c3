// EmulatedBlock: a block of a GPU's threads on the CPU, for tests of kernels (ops/cuda/block.h).
//
// Each thread has a stack of its own and runs until it waits for others. What the threads of a GPU
// do at the same time happens here in an order that tests choose: a kernel whose result depends on
// it lacks a sync(). Shared memory is new for each block and filled with NaN; its size is exact, so
// AddressSanitizer sees an index outside of it. Threads that wait for others which never come are
// an exception.
//
// Threading  a launch runs on the calling thread.
// Not here   the emulated table of kernels (kernels_emulated.cpp). Programs for users have neither.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace tlt::ops::cuda {

class Block;

// Of the threads of a block, and of the blocks of a launch: by number, the last first, or shuffled.
enum class ThreadOrder { kForward, kReverse, kShuffled, kShuffledAgain };
inline constexpr ThreadOrder kThreadOrders[] = {ThreadOrder::kForward, ThreadOrder::kReverse,
                                                ThreadOrder::kShuffled,
                                                ThreadOrder::kShuffledAgain};

// Of later launches. Initially kForward.
void set_thread_order(ThreadOrder order);
// Gets each launch and runs it: at once, later, or repeatedly. Null: launches run at once, as
// initially.
using LaunchHook = void (*)(const std::function<void()>& run);
void set_launch_hook(LaunchHook hook);

// A bit of every address of the tests' far device, so that the host cannot read it
// (tests/support/far_device.h); a launch takes it off. Not a valid address of x86-64 (48 or 57
// bits).
inline constexpr uintptr_t kFarBit = uintptr_t{1} << 62;

struct EmulatedLaunch {
  int64_t blocks = 0;
  int threads = 0;  // of a block
  size_t shared_bytes = 0;
  void (*body)(const Block& block, const void* parameters, void* shared) = nullptr;
  const void* parameters = nullptr;
};
// Throws what the body of a thread throws, and std::logic_error where threads wait forever.
void run_emulated(const EmulatedLaunch& launch);
// Gives `run`, which is a run_emulated(), to the hook.
void launch_emulated(const std::function<void()>& run);

// 32-bit words that a lane gives to its warp at once: of a product a, b, then d.
inline constexpr int kWarpWords = 10;
using WarpWords = uint32_t[32][kWarpWords];
enum class WarpOperation { kNone, kSync, kShuffle, kMultiply };

// The finish of a product: d += a b for all lanes, each sum rounded once.
void multiply_warp(WarpWords& words);

class EmulatedBlock {
 public:
  EmulatedBlock();
  ~EmulatedBlock();
  EmulatedBlock(const EmulatedBlock&) = delete;
  EmulatedBlock& operator=(const EmulatedBlock&) = delete;

  // For Block, in the body of a thread.
  int thread() const { return current_; }
  int index() const { return index_; }
  void sync();
  // Waits for the other lanes of the warp. Returns what each gave, after `finish`, which is called
  // once; valid until the thread waits again.
  const WarpWords& meet(WarpOperation operation, const void* mine, size_t bytes,
                        void (*finish)(WarpWords& words) = nullptr);

  // Runs one block. `order`: a permutation of its threads.
  void run(const EmulatedLaunch& launch, int index, const std::vector<int>& order);

  struct Fiber;

 private:
  // Two of them take turns: a lane that is ahead writes into the other one.
  struct Meeting {
    WarpOperation operation = WarpOperation::kNone;
    int arrived = 0;
    int64_t generation = 0;
    WarpWords words;
  };
  struct Warp {
    Meeting meetings[2];
  };

  static void enter();
  void start(int threads);
  void resume(int thread);
  void wait(const int64_t& generation);
  void leave();
  [[noreturn]] void throw_stuck() const;

  const EmulatedLaunch* launch_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::unique_ptr<Fiber> main_;
  std::vector<Warp> warps_;
  std::unique_ptr<std::byte[]> shared_;
  std::exception_ptr failure_;
  int current_ = 0, index_ = 0;
  int threads_ = 0, ended_ = 0;
  int arrived_ = 0;         // at sync()
  int64_t generation_ = 0;  // of sync()
};

}  // namespace tlt::ops::cuda

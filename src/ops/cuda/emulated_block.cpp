// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/emulated_block.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

#include "ops/cuda/block.h"

#if defined(__SANITIZE_ADDRESS__)
#define TLT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TLT_ASAN 1
#endif
#endif
#ifdef TLT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace tlt::ops::cuda {
namespace {

#ifdef TLT_ASAN
constexpr size_t kStackBytes = 512 << 10;  // its frames are many times larger
#else
constexpr size_t kStackBytes = 64 << 10;
#endif

ThreadOrder thread_order = ThreadOrder::kForward;
LaunchHook launch_hook = nullptr;
thread_local EmulatedBlock* running = nullptr;

std::vector<int> order_of(int count) {
  std::vector<int> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  if (thread_order == ThreadOrder::kReverse) std::reverse(order.begin(), order.end());
  if (thread_order == ThreadOrder::kShuffled || thread_order == ThreadOrder::kShuffledAgain)
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(thread_order)));
  return order;
}

float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace

void set_thread_order(ThreadOrder order) { thread_order = order; }
void set_launch_hook(LaunchHook hook) { launch_hook = hook; }

// A stack, and where it is left and entered again. swapcontext() would do two system calls a switch.
struct EmulatedBlock::Fiber {
  std::unique_ptr<char[]> stack;
#ifdef __x86_64__
  void* top = nullptr;
#else
  ucontext_t context;
#endif
#ifdef TLT_ASAN
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  size_t bytes = 0;
#endif
  bool ended = false;
  unsigned meetings = 0;             // of the warp, that this thread came to
  const int64_t* awaited = nullptr;  // runs on when this is no longer `seen`
  int64_t seen = 0;
};

#ifdef __x86_64__
// Saves the registers that a function keeps on this stack, whose top goes to *save, and takes those
// of the stack `load`.
extern "C" void tlt_switch_stack(void** save, void* load);
asm(R"(
.text
.globl tlt_switch_stack
.hidden tlt_switch_stack
.type tlt_switch_stack, @function
tlt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tlt_switch_stack, . - tlt_switch_stack
)");
#endif

namespace {

void prepare(EmulatedBlock::Fiber& fiber, void (*entry)()) {
  if (!fiber.stack) fiber.stack.reset(new char[kStackBytes]);
#ifdef TLT_ASAN
  // Frames of a thread that was never resumed after an exception.
  ASAN_UNPOISON_MEMORY_REGION(fiber.stack.get(), kStackBytes);
  fiber.fake_stack = nullptr;
  fiber.bottom = fiber.stack.get();
  fiber.bytes = kStackBytes;
#endif
#ifdef __x86_64__
  // As if entry had been called: the address it returns to, never used, then what a switch pops.
  constexpr int kRegisters = 6;
  auto end = reinterpret_cast<uintptr_t>(fiber.stack.get() + kStackBytes) / 16 * 16;
  auto** words = reinterpret_cast<void**>(end) - 2 - kRegisters;
  std::fill(words, words + kRegisters + 2, nullptr);
  words[kRegisters] = reinterpret_cast<void*>(entry);
  fiber.top = words;
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack = {fiber.stack.get(), 0, kStackBytes};
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
#endif
  fiber.ended = false;
  fiber.meetings = 0;
  fiber.awaited = nullptr;
}

void switch_stack(EmulatedBlock::Fiber& from, EmulatedBlock::Fiber& to) {
#ifdef TLT_ASAN
  __sanitizer_start_switch_fiber(from.ended ? nullptr : &from.fake_stack, to.bottom, to.bytes);
#endif
#ifdef __x86_64__
  tlt_switch_stack(&from.top, to.top);
#else
  swapcontext(&from.context, &to.context);
#endif
#ifdef TLT_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

}  // namespace

EmulatedBlock::EmulatedBlock() : main_(std::make_unique<Fiber>()) {}
EmulatedBlock::~EmulatedBlock() = default;

void EmulatedBlock::enter() {
  EmulatedBlock& block = *running;
#ifdef TLT_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &block.main_->bottom, &block.main_->bytes);
#endif
  try {
    block.launch_->body(Block(block), block.launch_->parameters, block.shared_.get());
  } catch (...) {
    if (!block.failure_) block.failure_ = std::current_exception();
  }
  block.leave();
}

void EmulatedBlock::leave() {
  Fiber& fiber = *fibers_[static_cast<size_t>(current_)];
  fiber.ended = true;
  ++ended_;
  switch_stack(fiber, *main_);
}

void EmulatedBlock::resume(int thread) {
  current_ = thread;
  switch_stack(*main_, *fibers_[static_cast<size_t>(thread)]);
}

void EmulatedBlock::wait(const int64_t& generation) {
  Fiber& fiber = *fibers_[static_cast<size_t>(current_)];
  fiber.awaited = &generation;
  fiber.seen = generation;
  switch_stack(fiber, *main_);
  fiber.awaited = nullptr;
}

void EmulatedBlock::sync() {
  if (++arrived_ < threads_) return wait(generation_);
  arrived_ = 0;
  ++generation_;
}

const WarpWords& EmulatedBlock::meet(WarpOperation operation, const void* mine, size_t bytes,
                                     void (*finish)(WarpWords& words)) {
  Fiber& fiber = *fibers_[static_cast<size_t>(current_)];
  Meeting& meeting = warps_[static_cast<size_t>(current_ / kWarp)].meetings[fiber.meetings++ % 2];
  if (meeting.arrived == 0) meeting.operation = operation;
  if (meeting.operation != operation)
    throw std::logic_error("lanes of warp " + std::to_string(current_ / kWarp) +
                           " meet in different operations");
  if (bytes > 0) std::memcpy(meeting.words[current_ % kWarp], mine, bytes);
  if (++meeting.arrived < kWarp) {
    wait(meeting.generation);
  } else {
    if (finish) finish(meeting.words);
    meeting.arrived = 0;
    ++meeting.generation;
  }
  return meeting.words;
}

void EmulatedBlock::throw_stuck() const {
  const auto at_sync = std::count_if(
      fibers_.begin(), fibers_.begin() + threads_,
      [&](const auto& fiber) { return !fiber->ended && fiber->awaited == &generation_; });
  throw std::logic_error("threads wait for others that never come: " + std::to_string(at_sync) +
                         " at sync(), " + std::to_string(threads_ - ended_ - at_sync) +
                         " for their warp, " + std::to_string(ended_) + " have ended");
}

void EmulatedBlock::start(int threads) {
  if (threads <= 0 || threads % kWarp != 0 || threads > 1024)
    throw std::logic_error("a block of " + std::to_string(threads) + " threads");
  while (static_cast<int>(fibers_.size()) < threads) fibers_.push_back(std::make_unique<Fiber>());
  for (int i = 0; i < threads; ++i) prepare(*fibers_[static_cast<size_t>(i)], &enter);
  warps_.assign(static_cast<size_t>(threads / kWarp), {});
  threads_ = threads;
  ended_ = arrived_ = 0;
  failure_ = nullptr;
}

void EmulatedBlock::run(const EmulatedLaunch& launch, int index, const std::vector<int>& order) {
  launch_ = &launch;
  index_ = index;
  start(launch.threads);
  shared_.reset(new std::byte[launch.shared_bytes]);
  std::memset(shared_.get(), 0xff, launch.shared_bytes);  // NaN
  running = this;
  while (ended_ < threads_) {
    bool stuck = true;
    for (const int thread : order) {
      const Fiber& fiber = *fibers_[static_cast<size_t>(thread)];
      if (fiber.ended || (fiber.awaited && *fiber.awaited == fiber.seen)) continue;
      stuck = false;
      resume(thread);
      if (failure_) std::rethrow_exception(failure_);
    }
    if (stuck) throw_stuck();
  }
}

void launch_emulated(const std::function<void()>& run) { launch_hook ? launch_hook(run) : run(); }

void run_emulated(const EmulatedLaunch& launch) {
  thread_local EmulatedBlock block;
  const std::vector<int> order = order_of(launch.threads);
  for (const int index : order_of(static_cast<int>(launch.blocks))) block.run(launch, index, order);
}

// Lane 4 g + t has of a rows g and g + 8, of b column g, of d columns 2 t and 2 t + 1.
void multiply_warp(WarpWords& words) {
  double a[16][16], b[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 2; ++k)
        a[g + i % 2 * 8][2 * t + k + i / 2 * 8] =
            float_of(k ? words[lane][i] & 0xffff0000U : words[lane][i] << 16);
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < 2; ++k)
        b[2 * t + k + i * 8][g] =
            float_of(k ? words[lane][4 + i] & 0xffff0000U : words[lane][4 + i] << 16);
  }
  double d[16][8] = {};
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
  for (int lane = 0; lane < kWarp; ++lane)
    for (int i = 0; i < 4; ++i) {
      uint32_t& word = words[lane][6 + i];
      const auto sum =
          static_cast<float>(float_of(word) + d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
      std::memcpy(&word, &sum, sizeof sum);
    }
}

}  // namespace tlt::ops::cuda

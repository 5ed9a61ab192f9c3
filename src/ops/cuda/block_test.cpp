// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <stdexcept>

#include "ops/cuda/launch.h"

namespace tlt::ops::cuda {
namespace {

using Body = std::function<void(const Block&)>;

// A kernel of any body over `kThreads` threads.
template <int kBlockThreads, class SharedMemory = float[64]>
struct AnyKernel {
  struct Parameters {
    int64_t count = 1;
    const std::function<void(const Block&, SharedMemory&)>* body = nullptr;
    template <class Visit>
    void pointers(const Visit&) {}
  };
  using Shared = SharedMemory;
  static constexpr int kThreads = kBlockThreads;
  static int64_t blocks(const Parameters& p) { return p.count; }
  static void run(const Block& block, const Parameters& p, Shared& shared) {
    (*p.body)(block, shared);
  }
};

template <int kThreads>
void run_threads(const std::function<void(const Block&, float (&)[64])>& body, int64_t blocks = 1) {
  launch<AnyKernel<kThreads>>({blocks, &body});
}

class EmulatedBlockTest : public ::testing::Test {
 protected:
  ~EmulatedBlockTest() override { set_thread_order(ThreadOrder::kForward); }
};

TEST_F(EmulatedBlockTest, EveryThreadOfEveryBlockRunsOnce) {
  for (const ThreadOrder order : kThreadOrders) {
    set_thread_order(order);
    std::array<int, 3 * 64> runs = {};
    run_threads<64>(
        [&](const Block& block, auto&) {
          EXPECT_EQ(block.thread(), block.warp() * 32 + block.lane());
          ++runs[static_cast<size_t>(block.index() * 64 + block.thread())];
        },
        3);
    EXPECT_THAT(runs, ::testing::Each(1));
  }
}

TEST_F(EmulatedBlockTest, OrdersDiffer) {
  std::vector<std::vector<int>> orders;
  for (const ThreadOrder order : kThreadOrders) {
    set_thread_order(order);
    orders.emplace_back();
    run_threads<64>([&](const Block& block,
                        auto&) { orders.back().push_back(block.index() * 64 + block.thread()); },
                    2);
  }
  for (size_t i = 0; i < orders.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(orders[i], orders[j]);
}

TEST_F(EmulatedBlockTest, ShufflesGiveTheValueOfTheOtherLane) {
  for (const ThreadOrder order : kThreadOrders) {
    set_thread_order(order);
    run_threads<64>([&](const Block& block, auto&) {
      const int lane = block.lane();
      for (int mask = 1; mask < 32; mask *= 2)
        EXPECT_EQ(block.shuffle_xor(100 * mask + lane, mask), 100 * mask + (lane ^ mask));
      EXPECT_EQ(block.shuffle(int64_t{1} << lane, 31 - lane), int64_t{1} << (31 - lane));
    });
  }
}

uint32_t bf16_of(float x) {  // of a number that bfloat16 has
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits >> 16;
}

// Fragments as the PTX manual has them: a [16, 16] by rows, b [16, 8] by columns.
TEST_F(EmulatedBlockTest, MultiplyIsTheProductOfTheFragments) {
  float a[16][16], b[16][8], want[16][8];
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) a[i][j] = static_cast<float>((i * 7 + j * 3) % 11 - 5);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) b[i][j] = static_cast<float>((i * 5 + j) % 7 - 3);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      want[i][j] = 1;
      for (int k = 0; k < 16; ++k) want[i][j] += a[i][k] * b[k][j];
    }
  const auto two = [](float low, float high) { return bf16_of(low) | bf16_of(high) << 16; };
  run_threads<32>([&](const Block& block, auto&) {
    const int g = block.lane() / 4, t = block.lane() % 4 * 2;
    const uint32_t x[4] = {two(a[g][t], a[g][t + 1]), two(a[g + 8][t], a[g + 8][t + 1]),
                           two(a[g][t + 8], a[g][t + 9]), two(a[g + 8][t + 8], a[g + 8][t + 9])};
    const uint32_t y[2] = {two(b[t][g], b[t + 1][g]), two(b[t + 8][g], b[t + 9][g])};
    float d[4] = {1, 1, 1, 1};
    block.multiply(d, x, y);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(d[i], want[g + i / 2 * 8][t + i % 2]) << g << ", " << t;
  });
}

// A block adds what its threads have in shared memory, with and without the barrier that it needs.
std::vector<float> sums(bool has_sync) {
  std::vector<float> all;
  for (const ThreadOrder order : kThreadOrders) {
    set_thread_order(order);
    run_threads<64>([&](const Block& block, float(&shared)[64]) {
      shared[block.thread()] = static_cast<float>(block.thread());
      if (has_sync) block.sync();
      if (block.thread() != 40) return;
      float sum = 0;
      for (const float x : shared) sum += std::isnan(x) ? 0 : x;
      all.push_back(sum);
    });
  }
  return all;
}

TEST_F(EmulatedBlockTest, AMissingSyncGivesAnotherResultInAnotherOrder) {
  EXPECT_THAT(sums(true), ::testing::Each(64 * 63 / 2));
  const std::vector<float> without = sums(false);
  EXPECT_THAT(without, ::testing::Contains(::testing::Ne(without[0])));
}

TEST_F(EmulatedBlockTest, SharedMemoryIsNaNAtFirst) {
  run_threads<32>(
      [](const Block& block, float(&shared)[64]) {
        EXPECT_TRUE(std::isnan(shared[block.thread() * 2]));
        shared[block.thread() * 2] = 0;
      },
      2);
}

TEST_F(EmulatedBlockTest, WaitingForThreadsThatNeverComeIsAnError) {
  const auto expect_error = [](const Body& body, const std::string& text) {
    EXPECT_THAT([&] { run_threads<64>([&](const Block& block, auto&) { body(block); }); },
                ::testing::ThrowsMessage<std::logic_error>(::testing::HasSubstr(text)));
  };
  expect_error(
      [](const Block& block) {
        if (block.thread() != 7) block.sync();
      },
      "63 at sync(), 0 for their warp, 1 have ended");
  expect_error(
      [](const Block& block) {
        if (block.lane() < 31) block.shuffle_xor(1, 1);
      },
      "0 at sync(), 62 for their warp, 2 have ended");
  expect_error(
      [](const Block& block) {
        if (block.lane() == 3)
          block.sync_warp();
        else
          block.shuffle_xor(1, 1);
      },
      "lanes of warp 0 meet in different operations");
  expect_error(
      [](const Block& block) {
        if (block.thread() == 63) throw std::logic_error("of a thread");
        block.sync();
      },
      "of a thread");
  // The next launch has nothing of these.
  EXPECT_THAT(sums(true), ::testing::Each(64 * 63 / 2));
}

}  // namespace
}  // namespace tlt::ops::cuda

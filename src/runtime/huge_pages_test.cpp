// SPDX-License-Identifier: Apache-2.0
#include "runtime/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tlt::runtime {
namespace {

TEST(HugePagesTest, PiecesAreZeroAlignedAndDisjoint) {
  HugePages pages;
  std::vector<std::pair<std::shared_ptr<void>, size_t>> pieces;
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{100'000}, size_t{3} << 20,
                             size_t{40} << 20, size_t{30} << 20, size_t{65}}) {
    pieces.emplace_back(pages.take(bytes), bytes);
    auto* first = static_cast<char*>(pieces.back().first.get());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
    EXPECT_EQ(std::count(first, first + bytes, 0), static_cast<int64_t>(bytes));
    std::fill(first, first + bytes, static_cast<char>(pieces.size()));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto* first = static_cast<const char*>(pieces[i].first.get());
    EXPECT_EQ(std::count(first, first + pieces[i].second, static_cast<char>(i + 1)),
              static_cast<int64_t>(pieces[i].second));
  }
}

TEST(HugePagesTest, PieceOutlivesItsAllocator) {
  std::shared_ptr<void> piece = HugePages().take(1000);
  auto* first = static_cast<char*>(piece.get());
  std::fill(first, first + 1000, 'x');
  EXPECT_EQ(first[999], 'x');
}

// Regression: each step scored its samples with a temporary cache allocated after the weights, and
// 32 MB of memory leaked over the run.
TEST(HugePagesTest, ReleasedPieceIsReusedAndZeroed) {
  HugePages pages;
  const std::shared_ptr<void> weights = pages.take(1000);
  const auto write = [](const std::shared_ptr<void>& piece, size_t bytes) {
    std::fill_n(static_cast<char*>(piece.get()), bytes, 'x');
  };
  const void* address = nullptr;
  for (int step = 0; step < 100; ++step) {
    std::shared_ptr<void> cache = pages.take(90'000), other = pages.take(50'000);
    if (step == 0) address = cache.get();
    ASSERT_EQ(cache.get(), address) << "step " << step;
    const auto* bytes = static_cast<const char*>(cache.get());
    ASSERT_EQ(std::count(bytes, bytes + 90'000, 0), 90'000);
    write(cache, 90'000);
    write(other, 50'000);
    if (step % 2 == 0) cache.reset();  // before the piece after it
  }
  const std::shared_ptr<void> larger = pages.take(200'000);
  EXPECT_EQ(larger.get(), address);
  const auto* bytes = static_cast<const char*>(larger.get());
  EXPECT_EQ(std::count(bytes, bytes + 200'000, 0), 200'000);
}

int64_t resident_bytes(const void* first, size_t bytes) {
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  EXPECT_EQ(mincore(const_cast<void*>(first), bytes, pages.data()), 0);
  return 4096 * std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
}

// At the same address, and zero; its neighbours stay.
TEST(HugePagesTest, MemoryOfALargePieceIsReleasedUntilItIsWritten) {
  HugePages pages;
  const size_t large = (size_t{40} << 20) + 64, small = size_t{1} << 20;
  const std::shared_ptr<void> before = pages.take(small), piece = pages.take(large),
                              after = pages.take(small);
  for (const auto& [memory, bytes] : {std::pair(before, small), {piece, large}, {after, small}})
    std::fill_n(static_cast<char*>(memory.get()), bytes, 'x');
  EXPECT_GE(resident_bytes(piece.get(), large), static_cast<int64_t>(large));
  EXPECT_FALSE(HugePages::try_release(before.get(), small));
  ASSERT_TRUE(HugePages::try_release(piece.get(), large));
  EXPECT_EQ(resident_bytes(piece.get(), large), 0);
  auto* bytes = static_cast<char*>(piece.get());
  EXPECT_EQ(std::count(bytes, bytes + large, 0), static_cast<int64_t>(large));
  std::fill_n(bytes, large, 'y');
  for (const auto& neighbour : {before, after}) {
    const auto* first = static_cast<const char*>(neighbour.get());
    EXPECT_EQ(std::count(first, first + small, 'x'), static_cast<int64_t>(small));
  }
}

// What is in whole pages of a part; nothing outside of it.
TEST(HugePagesTest, PartOfAPieceIsReleased) {
  HugePages pages;
  const size_t large = size_t{40} << 20, page = size_t{2} << 20, first = 3 * page + 64;
  const std::shared_ptr<void> piece = pages.take(large);
  auto* bytes = static_cast<char*>(piece.get());
  for (const size_t part : {size_t{100}, page, page + 64, 5 * page, large - first}) {
    std::fill_n(bytes, large, 'x');
    HugePages::release_inside(bytes + first, part);
    const auto zeros = static_cast<size_t>(std::count(bytes + first, bytes + first + part, 0));
    const size_t skip = page - 64;
    EXPECT_EQ(zeros, part < skip ? 0 : (part - skip) / page * page) << part;
    EXPECT_EQ(std::count(bytes, bytes + large, 0), static_cast<int64_t>(zeros)) << part;
  }
  HugePages::release_inside(bytes, 0);
}

TEST(HugePagesTest, TooLargeRequestIsAnInputError) {
  EXPECT_THROW(HugePages().take(size_t{1} << 55), InputError);
}

}  // namespace
}  // namespace tlt::runtime

// SPDX-License-Identifier: Apache-2.0
#include "runtime/huge_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tlt::runtime {
namespace {

TEST(HugePagesTest, PiecesAreZeroAlignedAndApart) {
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

TEST(HugePagesTest, PieceOutlivesItsMaker) {
  std::shared_ptr<void> piece = HugePages().take(1000);
  auto* first = static_cast<char*>(piece.get());
  std::fill(first, first + 1000, 'x');
  EXPECT_EQ(first[999], 'x');
}

TEST(HugePagesTest, TooMuchIsTheUsersMistake) {
  EXPECT_THROW(HugePages().take(size_t{1} << 55), InputError);
}

}  // namespace
}  // namespace tlt::runtime

// SPDX-License-Identifier: Apache-2.0
#include "drafter/hidden_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace tlt::drafter {
namespace {

// Compared with a list of all rows.
TEST(HiddenRowsTest, KeepTheLatestRowsUpToTheLimit) {
  for (const int64_t limit : {int64_t{1}, int64_t{37}, HiddenRows::kNoLimit}) {
    HiddenRows rows(limit);
    std::vector<at::Tensor> want;
    int64_t missed = 0;
    RandomStream random(/*seed=*/7, {});
    at::Tensor got = at::empty({2, 3}, at::kBFloat16);
    for (int step = 0; step < 400; ++step) {
      const auto count = static_cast<int64_t>(random.below(step % 50 == 0 ? 60 : 5));
      // Columns of a wider tensor, as auxiliary hidden states are.
      const at::Tensor hidden = at::rand({count + 1, 5}).to(at::kBFloat16).narrow(1, 0, 3);
      if (random.below(2) == 0) {
        rows.append(hidden);
        for (int64_t i = 0; i <= count; ++i) want.push_back(hidden[i]);
      } else {
        std::vector<int32_t> chosen;
        for (int64_t i = 0; i < count; ++i)
          chosen.push_back(
              static_cast<int32_t>(random.below(static_cast<uint64_t>(hidden.size(0)))));
        rows.append(hidden, chosen);
        for (const int32_t row : chosen) want.push_back(hidden[row]);
      }
      if (limit != HiddenRows::kNoLimit && random.below(40) == 0) {
        want.resize(want.size() + 5);
        rows.skip_to(missed = std::ssize(want));
      }
      ASSERT_EQ(rows.count(), std::ssize(want));
      ASSERT_EQ(rows.first(), std::max(missed, std::ssize(want) - limit));
      for (int64_t i = rows.first(); i < rows.count(); ++i) {
        rows.copy(i, got, 1);
        ASSERT_TRUE(at::equal(got[1], want[static_cast<size_t>(i)])) << "row " << i;
      }
      if (rows.first() > 0) {
        EXPECT_THROW(rows.copy(rows.first() - 1, got, 0), Error);
      }
      EXPECT_THROW(rows.copy(rows.count(), got, 0), Error);
    }
    if (limit != HiddenRows::kNoLimit) {
      EXPECT_EQ(rows.memory_bytes(), limit * 3 * 2);
    }
    const int64_t bytes = rows.memory_bytes();
    rows.clear();
    EXPECT_EQ(rows.count() + rows.first(), 0);
    EXPECT_EQ(rows.memory_bytes(), bytes) << "kept for the next sequence";
  }
}

TEST(HiddenRowsTest, RowsOfAnotherShapeAreRejected) {
  HiddenRows rows;
  EXPECT_EQ(rows.memory_bytes(), 0);
  rows.append(at::zeros({2, 3}));
  EXPECT_THROW(rows.append(at::zeros({1, 4})), Error);
  EXPECT_THROW(rows.append(at::zeros({1, 3}, at::kBFloat16)), Error);
}

}  // namespace
}  // namespace tlt::drafter

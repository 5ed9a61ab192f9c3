// SPDX-License-Identifier: Apache-2.0
#include "data/row_store.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace tlt::data {
namespace {

std::string row_text(int64_t i) {
  return std::string(static_cast<size_t>(i * 7 % 13), 'a') + std::to_string(i);
}

TEST(RowStoreTest, RowsAreTheSameInMemoryAndInTheFile) {
  for (const size_t limit : {0, 1, 100, 5000, 1 << 20}) {
    RowStore store(limit);
    for (int64_t i = 0; i < 1000; ++i) store.append(row_text(i));
    ASSERT_EQ(store.size(), 1000);
    for (const int64_t i : {999, 0, 1, 500, 998, 13, 0})
      EXPECT_EQ(store.row(i), row_text(i)) << "row " << i << ", limit " << limit;
    EXPECT_EQ(store.file_bytes() > 0, limit < 1 << 20) << limit;
  }
}

TEST(RowStoreTest, MemoryIsBounded) {
  RowStore store(/*memory_bytes=*/1000);
  int64_t bytes = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    store.append(row_text(i));
    bytes += static_cast<int64_t>(row_text(i).size());
    EXPECT_LE(bytes - store.file_bytes(), 1000);
  }
}

TEST(RowStoreTest, EmptyAndMissingRows) {
  RowStore store(0);
  store.append("");
  store.append("x");
  store.append("");
  EXPECT_EQ(store.row(0), "");
  EXPECT_EQ(store.row(1), "x");
  EXPECT_EQ(store.row(2), "");
  EXPECT_THROW(store.row(3), Error);
}

}  // namespace
}  // namespace tlt::data

// The numbers of token rows that work on a device other than the CPU is padded to. There are few,
// so that a matrix product can be tried at each of them (product_probe.h) and a graph of the
// forward pass captured for each (rollout/graph_cache.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tlt::ops {

inline constexpr int64_t kMostPaddedRows = 512;

// The least of 1, 2, 4, 8, 16, 24 … 512 that is not below `rows`. REQUIRES: 1 <= rows <= 512.
inline int64_t padded_rows(int64_t rows) {
  TLT_CHECK(rows >= 1 && rows <= kMostPaddedRows, rows, " rows");
  if (rows > 4) return (rows + 7) / 8 * 8;
  return rows == 3 ? 4 : rows;
}

// All of them, rising.
inline std::vector<int64_t> all_padded_rows() {
  std::vector<int64_t> all;
  for (int64_t rows = 1; rows <= kMostPaddedRows; rows = padded_rows(rows) + 1)
    all.push_back(padded_rows(rows));
  return all;
}

}  // namespace tlt::ops

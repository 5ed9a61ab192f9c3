// RowStore: the rows of a dataset as bytes, by index. A small dataset stays in memory; of a large
// one all but the last rows are in an unnamed file that ends with the process.
//
// Owns       that file (in /var/tmp, which unlike /tmp is on a disk) and an offset per row. Memory
//            is bounded by `memory_bytes` or the longest row, plus 8 bytes per row.
// Not here   the format of the bytes (dataset.cpp).
// Threading  append(): one thread. row(): any thread, after the last append().
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace tlt::data {

class RowStore {
 public:
  static constexpr size_t kMemoryBytes = size_t{256} << 20;

  explicit RowStore(size_t memory_bytes = kMemoryBytes) : memory_bytes_(memory_bytes) {}

  // InputError: the disk is full.
  void append(std::string_view row);

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }

  // REQUIRES: 0 <= index < size().
  std::string row(int64_t index) const;

  int64_t file_bytes() const { return in_file_; }

 private:
  void write_out();

  const size_t memory_bytes_;
  std::vector<int64_t> ends_;  // offsets of the ends of the rows
  int64_t in_file_ = 0;        // bytes in the file; those that follow are in memory_
  std::string memory_;
  mutable FileHandle file_;  // read at an offset: no state of it changes
};

}  // namespace tlt::data

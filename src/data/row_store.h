// RowStore: the rows of a dataset as bytes, by number. A dataset that is small stays in memory; of
// a large one all but the last rows are in a file that has no name and is gone with the process.
//
// Owns       that file (in /var/tmp, which unlike /tmp is on a disk) and a place for each row.
//            Bounded: `memory_bytes` or the longest row, and 8 bytes for each row.
// Not here   what the bytes mean (dataset.cpp).
// Threading  append(): one thread. row(): any thread, once nothing is appended.
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
  std::vector<int64_t> ends_;  // of the rows, one behind the other
  int64_t in_file_ = 0;        // so many bytes are in the file; those that follow are in memory_
  std::string memory_;
  mutable FileHandle file_;  // read at a place: no state of it changes
};

}  // namespace tlt::data

// HiddenRows: hidden states of successive tokens, one row each: all of them, or the latest `limit`
// in a ring.
//
// Owns       copies of the rows, in the type and on the device of the first ones. The memory grows
//            by doubling up to `limit` rows and is kept by clear().
// Threading  thread-compatible; no locks.
//
//   HiddenRows rows(/*limit=*/512);
//   rows.append(hidden);                          // [n, S]
//   rows.copy(rows.count() - 1, to, /*row=*/0);   // the latest one
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

namespace tlt::drafter {

class HiddenRows {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  explicit HiddenRows(int64_t limit = kNoLimit) : limit_(limit) {}

  // Number of rows since clear(), and the first one that is still kept.
  int64_t count() const { return count_; }
  int64_t first() const { return std::max(missed_, count_ - limit_); }

  void clear() { count_ = missed_ = 0; }
  // There are now `count` rows, of which none are kept. REQUIRES: count > this->count(), a limit.
  void skip_to(int64_t count) { count_ = missed_ = count; }
  // Allocates memory for the first `count` rows, of which at most `limit` are kept.
  void reserve(int64_t count, const at::Tensor& like);
  // Appends all rows of hidden [T, S], or `count` from `first` on, or these, in this order.
  void append(const at::Tensor& hidden) { append(hidden, 0, hidden.size(0)); }
  void append(const at::Tensor& hidden, int64_t first, int64_t count);
  void append(const at::Tensor& hidden, std::span<const int32_t> rows);

  // Copies row `index` to row `to_row` of `to` [T, S]. REQUIRES: first() <= index < count().
  void copy(int64_t index, at::Tensor& to, int64_t to_row) const;
  // The memory, at most [limit, S]; row i is in its row i % limit. Undefined before the first row.
  const at::Tensor& memory() const { return memory_; }
  int64_t memory_bytes() const {
    return memory_.defined() ? static_cast<int64_t>(memory_.nbytes()) : 0;
  }

 private:
  int64_t limit_;
  int64_t count_ = 0;
  int64_t missed_ = 0;  // rows before this one were not received
  at::Tensor memory_;
};

// Copies row `from_row` of `from` [T, S] to row `to_row` of `to` [U, S]; same type and device.
void copy_row(const at::Tensor& from, int64_t from_row, at::Tensor& to, int64_t to_row);

}  // namespace tlt::drafter

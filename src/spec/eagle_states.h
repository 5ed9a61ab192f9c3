// EagleStates: the last hidden states of a text: what an EAGLE drafter can still read of it,
// however late it is asked.
//
// Owns       the states, in the compute type. The memory grows with the text up to `window` states
//            and stays when cleared.
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "runtime/device.h"

namespace tlt::spec {

class EagleStates {
 public:
  explicit EagleStates(int64_t window) : window_(window) {}

  // States since clear(), and the first of them that is still there.
  int64_t count() const { return count_; }
  int64_t first() const { return std::max(missed_, count_ - window_); }

  void clear() { count_ = missed_ = 0; }
  // The text has `count` states now, of which none are kept. REQUIRES: count > this->count().
  void skip_to(int64_t count) { count_ = missed_ = count; }
  // Of hidden [T, D], in this order.
  void append(const Device& device, const at::Tensor& hidden, std::span<const int32_t> rows);
  // All of hidden [T, D].
  void append_all(const Device& device, const at::Tensor& hidden);
  // Puts state `index` into row `row` of `to` [T, D]. REQUIRES: first() <= index < count().
  void copy(int64_t index, at::Tensor& to, int64_t row) const;

  int64_t memory_bytes() const;

 private:
  // Room for `count` states, as far as they are kept.
  void reserve(const Device& device, int64_t count, const at::Tensor& like);

  int64_t window_;
  int64_t count_ = 0;
  int64_t missed_ = 0;  // states before this one were never seen
  at::Tensor states_;   // [at most window, D]; state i at i % window
};

// Row `from_row` of `from` [T, D] to row `to_row` of `to` [U, D], of one type, on one device.
void copy_row(const at::Tensor& from, int64_t from_row, at::Tensor& to, int64_t to_row);

}  // namespace tlt::spec

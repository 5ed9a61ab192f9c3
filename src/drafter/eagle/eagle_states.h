// EagleStates: the last hidden states of a sequence or prompt, which an EAGLE drafter can still
// read when it joins late.
//
// Owns       the states, in the compute type. The memory grows with the sequence up to `window`
//            states and is kept by clear().
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "runtime/device.h"

namespace tlt::drafter {

class EagleStates {
 public:
  explicit EagleStates(int64_t window) : window_(window) {}

  // Number of states since clear(), and the first one that is still kept.
  int64_t count() const { return count_; }
  int64_t first() const { return std::max(missed_, count_ - window_); }

  void clear() { count_ = missed_ = 0; }
  // The sequence now has `count` states, of which none are kept. REQUIRES: count > this->count().
  void skip_to(int64_t count) { count_ = missed_ = count; }
  // Appends these rows of hidden [T, D], in this order.
  void append(const Device& device, const at::Tensor& hidden, std::span<const int32_t> rows);
  // Appends all rows of hidden [T, D].
  void append_all(const Device& device, const at::Tensor& hidden);
  // Copies state `index` to row `row` of `to` [T, D]. REQUIRES: first() <= index < count().
  void copy(int64_t index, at::Tensor& to, int64_t row) const;

  int64_t memory_bytes() const;

 private:
  // Grows the memory for `count` states, of which at most `window` are kept.
  void reserve(const Device& device, int64_t count, const at::Tensor& like);

  int64_t window_;
  int64_t count_ = 0;
  int64_t missed_ = 0;  // states before this one were not received
  at::Tensor states_;   // [at most window, D]; state i at i % window
};

// Copies row `from_row` of `from` [T, D] to row `to_row` of `to` [U, D]; same type and device.
void copy_row(const at::Tensor& from, int64_t from_row, at::Tensor& to, int64_t to_row);

}  // namespace tlt::drafter

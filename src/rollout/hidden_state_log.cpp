// SPDX-License-Identifier: Apache-2.0
#include "rollout/hidden_state_log.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "drafter/eagle/eagle_states.h"

namespace tlt::rollout {
namespace {

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

int64_t row_bytes(const at::Tensor& states) {
  return states.defined() ? states.size(1) * static_cast<int64_t>(states.element_size()) : 0;
}

at::Tensor empty_like(const at::Tensor& states, int64_t rows) {
  return states.defined() ? at::empty({rows, states.size(1)}, states.options()) : at::Tensor();
}

void copy_row(const at::Tensor& from, int64_t from_row, at::Tensor to, int64_t to_row) {
  if (from.defined()) drafter::copy_row(from, from_row, to, to_row);
}

}  // namespace

void HiddenStateLog::start(const TargetStates& like) {
  const int64_t bytes = row_bytes(like.hidden()) + row_bytes(like.captured());
  const int64_t rows = std::clamp<int64_t>(kBytes / bytes, 1, most_rows_);
  entries_.resize(static_cast<size_t>(rows));
  taken_.reserve(entries_.size());
  rows_.reserve(entries_.size());
  states_ = TargetStates(empty_like(like.hidden(), rows), empty_like(like.captured(), rows));
}

void HiddenStateLog::add(drafter::SequenceId id, int64_t first, const TargetStates& states,
                         std::span<const int32_t> rows) {
  if (entries_.empty()) start(states);
  for (const int32_t from : rows) {
    const auto to = static_cast<int64_t>(row(end_));
    copy_row(states.hidden(), from, states_.hidden(), to);
    copy_row(states.captured(), from, states_.captured(), to);
    entries_[row(end_++)] = {.id = id, .token = first++};
  }
  begin_ = std::max(begin_, end_ - std::ssize(entries_));
}

int64_t HiddenStateLog::memory_bytes() const {
  return static_cast<int64_t>(entries_.capacity() * sizeof(Entry) +
                              taken_.capacity() * sizeof(Taken) +
                              rows_.capacity() * sizeof(int32_t)) +
         bytes_of(states_.hidden()) + bytes_of(states_.captured());
}

}  // namespace tlt::rollout

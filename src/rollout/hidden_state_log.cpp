// SPDX-License-Identifier: Apache-2.0
#include "rollout/hidden_state_log.h"

#include <algorithm>

namespace tlt::rollout {
namespace {

int64_t row_bytes(const at::Tensor& states) {
  return states.defined() ? states.size(1) * static_cast<int64_t>(states.element_size()) : 0;
}

}  // namespace

void HiddenStateLog::start(const TargetStates& like) {
  const int64_t bytes = row_bytes(like.hidden()) + row_bytes(like.captured());
  const int64_t rows = std::clamp<int64_t>(kBytes / bytes, 1, most_rows_);
  entries_.resize(static_cast<size_t>(rows));
  taken_.reserve(entries_.size());
  rows_.reserve(entries_.size());
  hidden_ = captured_ = drafter::HiddenRows(rows);
  hidden_.reserve(rows, like.hidden());
  if (like.captured().defined()) captured_.reserve(rows, like.captured());
}

void HiddenStateLog::add(drafter::SequenceId id, int64_t first, const TargetStates& states,
                         std::span<const int32_t> rows) {
  if (entries_.empty()) start(states);
  hidden_.append(states.hidden(), rows);
  if (states.captured().defined()) captured_.append(states.captured(), rows);
  for (size_t i = 0; i < rows.size(); ++i) entries_[row(end_++)] = {.id = id, .token = first++};
  begin_ = std::max(begin_, end_ - std::ssize(entries_));
}

int64_t HiddenStateLog::memory_bytes() const {
  return static_cast<int64_t>(entries_.capacity() * sizeof(Entry) +
                              taken_.capacity() * sizeof(Taken) +
                              rows_.capacity() * sizeof(int32_t)) +
         hidden_.memory_bytes() + captured_.memory_bytes();
}

}  // namespace tlt::rollout

// SPDX-License-Identifier: Apache-2.0
#include "rollout/commit_journal.h"

#include <ATen/ATen.h>

#include <numeric>
#include <utility>

#include "base/check.h"
#include "spec/eagle_states.h"

namespace tlt::rollout {
namespace {

constexpr size_t kMostTokens = 2 * CommitJournal::kRows;  // a commit more than is_full() says

at::Tensor room_like(const at::Tensor& states) {
  if (!states.defined()) return {};
  return at::empty({static_cast<int64_t>(kMostTokens), states.size(1)}, states.options());
}

void copy_rows(const at::Tensor& from, std::span<const int32_t> rows, at::Tensor to, size_t first) {
  if (!from.defined()) return;
  for (const int32_t row : rows) spec::copy_row(from, row, to, static_cast<int64_t>(first++));
}

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

CommitJournal::CommitJournal(bool with_states) : with_states_(with_states), rows_(kMostTokens) {
  entries_.reserve(2 * kRows);
  tokens_.reserve(kMostTokens);
  std::iota(rows_.begin(), rows_.end(), 0);
}

void CommitJournal::begin(spec::SequenceId id, std::shared_ptr<const GroupState> group) {
  entries_.push_back({.event = Event::kBegin, .id = id, .group = std::move(group)});
}

void CommitJournal::commit(spec::SequenceId id, std::span<const int32_t> tokens,
                           const TargetStates& states, std::span<const int32_t> rows) {
  const size_t first = tokens_.size();
  TLT_CHECK(rows.size() == tokens.size() && first + tokens.size() <= kMostTokens, tokens.size(),
            " tokens and ", rows.size(), " rows after ", first);
  if (with_states_) {
    if (!states_.hidden().defined())
      states_ = TargetStates(room_like(states.hidden()), room_like(states.captured()));
    copy_rows(states.hidden(), rows, states_.hidden(), first);
    copy_rows(states.captured(), rows, states_.captured(), first);
  }
  entries_.push_back({.event = Event::kCommit, .id = id, .first = first, .count = tokens.size()});
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void CommitJournal::end(spec::SequenceId id) {
  entries_.push_back({.event = Event::kEnd, .id = id});
}

void CommitJournal::clear() {
  entries_.clear();
  tokens_.clear();
}

int64_t CommitJournal::memory_bytes() const {
  return static_cast<int64_t>(entries_.capacity() * sizeof(Entry) +
                              (tokens_.capacity() + rows_.capacity()) * sizeof(int32_t)) +
         bytes_of(states_.hidden()) + bytes_of(states_.captured());
}

}  // namespace tlt::rollout

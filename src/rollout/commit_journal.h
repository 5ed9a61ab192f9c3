// CommitJournal: what became of sequences in steps without guesses, kept for the drafters until one
// of them is asked again. To tell drafters of many steps at once costs a fraction of what it costs
// to tell them of each, between two forward passes that leave nothing of theirs in the caches.
//
// Owns       the entries, in order, and copies of the states they need. Bounded: see is_full().
// Threading  engine thread only; no locks; no allocation once warm.
//
//   if (journal.is_full()) { … tell all entries() …; journal.clear(); }
//   journal.commit(id, tokens, states, rows);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "rollout/sequence.h"
#include "rollout/target_states.h"
#include "spec/drafter.h"

namespace tlt::rollout {

class CommitJournal {
 public:
  enum class Event { kBegin, kCommit, kEnd };
  struct Entry {
    Event event = Event::kCommit;
    spec::SequenceId id;
    std::shared_ptr<const GroupState> group = nullptr;  // of kBegin
    size_t first = 0, count = 0;                        // of kCommit: its tokens
  };

  // with_states: for drafters that read the states that tokens were drawn from.
  explicit CommitJournal(bool with_states);

  void begin(spec::SequenceId id, std::shared_ptr<const GroupState> group);
  // rows[i] of the states [T, …] is that of token i. REQUIRES: not is_full(); at most kRows tokens.
  void commit(spec::SequenceId id, std::span<const int32_t> tokens, const TargetStates& states,
              std::span<const int32_t> rows);
  void end(spec::SequenceId id);
  void clear();

  static constexpr size_t kRows = 256;
  // It is to be emptied before the next entry.
  bool is_full() const { return tokens_.size() >= kRows || entries_.size() >= 2 * kRows; }
  bool empty() const { return entries_.empty(); }

  std::span<const Entry> entries() const { return entries_; }
  std::span<const int32_t> tokens(const Entry& commit) const {
    return std::span(tokens_).subspan(commit.first, commit.count);
  }
  // Of states().
  std::span<const int32_t> rows(const Entry& commit) const {
    return std::span(rows_).subspan(commit.first, commit.count);
  }
  const TargetStates& states() const { return states_; }

  int64_t memory_bytes() const;

 private:
  const bool with_states_;
  std::vector<Entry> entries_;
  std::vector<int32_t> tokens_;  // of all commits; the states of token i are row i
  std::vector<int32_t> rows_;    // 0, 1, 2 …
  TargetStates states_{at::Tensor()};
};

}  // namespace tlt::rollout

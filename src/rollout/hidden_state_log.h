// HiddenStateLog: ring buffer of the hidden states that the latest tokens of all sequences were
// sampled from, until a drafter reads them. A non-speculative step only adds a row per sequence;
// the oldest rows are overwritten.
//
// Owns       copies of the states, and the sequence and token index of each row.
// Threading  engine thread only; no locks; no allocation once warm.
//
//   log.add(id, first, states, rows);   // tokens first … were sampled from these rows
//   log.take(is_wanted, [&](drafter::SequenceId id, int64_t first, const TargetStates& kept,
//                           std::span<const int32_t> rows) { … });
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "drafter/drafter.h"
#include "drafter/hidden_rows.h"
#include "rollout/target_states.h"

namespace tlt::rollout {

class HiddenStateLog {
 public:
  // Capacity: this many rows, or as many as fit into these bytes.
  static constexpr int64_t kRows = 4096, kBytes = int64_t{64} << 20;

  explicit HiddenStateLog(int64_t rows = kRows) : most_rows_(rows) {}

  // Adds copies: token first + i of the response was sampled from rows[i] of the states [T, …].
  // Tokens of a sequence are added in order.
  void add(drafter::SequenceId id, int64_t first, const TargetStates& states,
           std::span<const int32_t> rows);
  // Passes the rows of the sequences with is_wanted(id) to read(id, first, states, rows), one
  // sequence after the other, consecutive tokens together, and removes them.
  template <class IsWanted, class Read>
  void take(const IsWanted& is_wanted, const Read& read) {
    taken_.clear();
    for (int64_t i = begin_; i < end_; ++i) {
      Entry& entry = entries_[row(i)];
      if (entry.token == kTaken || !is_wanted(entry.id)) continue;
      taken_.push_back({entry, static_cast<int32_t>(row(i))});
      entry.token = kTaken;
    }
    while (begin_ < end_ && entries_[row(begin_)].token == kTaken) ++begin_;
    const TargetStates states(hidden_.memory(), captured_.memory());
    // Rows of sequences that decode together are interleaved in the ring.
    std::ranges::sort(taken_, {}, [](const Taken& it) { return std::tuple(it.id, it.token); });
    for (size_t i = 0; i < taken_.size();) {
      const Entry first = taken_[i];
      rows_.clear();
      for (; i < taken_.size() && taken_[i].id == first.id &&
             taken_[i].token == first.token + std::ssize(rows_);
           ++i)
        rows_.push_back(taken_[i].row);
      read(first.id, first.token, states, std::span<const int32_t>(rows_));
    }
  }
  // Removes the sequence's rows.
  void forget(drafter::SequenceId id) {
    take([&](drafter::SequenceId other) { return other == id; }, [](auto&&...) {});
  }

  int64_t memory_bytes() const;

 private:
  struct Entry {
    drafter::SequenceId id;
    int64_t token = kTaken;
  };
  static constexpr int64_t kTaken = -1;
  struct Taken : Entry {
    int32_t row = 0;
  };

  // Entries are numbered since construction; entry i is in row i % capacity.
  size_t row(int64_t i) const { return static_cast<size_t>(i) % entries_.size(); }
  void start(const TargetStates& like);

  const int64_t most_rows_;
  std::vector<Entry> entries_;
  drafter::HiddenRows hidden_, captured_;  // rings of as many rows as entries_
  int64_t begin_ = 0, end_ = 0;            // entries [begin_, end_) may still be read
  std::vector<Taken> taken_;               // scratch
  std::vector<int32_t> rows_;              // scratch
};

}  // namespace tlt::rollout

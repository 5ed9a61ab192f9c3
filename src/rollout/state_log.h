// StateLog: the states that the latest tokens of all sequences were drawn from, until a drafter
// reads them. A step without guesses adds a row for each sequence and nothing else; what is too
// long ago is overwritten.
//
// Owns       copies of the states: a ring of rows, and which token of which sequence each is for.
// Threading  engine thread only; no locks; no allocation once warm.
//
//   log.add(id, first, states, rows);   // tokens first … of a response were drawn from these rows
//   log.take(is_wanted, [&](spec::SequenceId id, int64_t first, const TargetStates& kept,
//                           std::span<const int32_t> rows) { … });
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "rollout/target_states.h"
#include "spec/drafter.h"

namespace tlt::rollout {

class StateLog {
 public:
  // Of this many rows, or as many as these bytes hold, the latest are kept.
  static constexpr int64_t kRows = 4096, kBytes = int64_t{64} << 20;

  explicit StateLog(int64_t rows = kRows) : most_rows_(rows) {}

  // Token first + i of the response was drawn from rows[i] of the states [T, …]. In order.
  void add(spec::SequenceId id, int64_t first, const TargetStates& states,
           std::span<const int32_t> rows);
  // Hands out the rows of the sequences for which is_wanted(id), one sequence after the other, and
  // forgets them: read(id, first, states, rows), the tokens together that follow one another.
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
    // In the log, those that decode together take turns.
    std::ranges::sort(taken_, {}, [](const Taken& it) { return std::tuple(it.id, it.token); });
    for (size_t i = 0; i < taken_.size();) {
      const Entry first = taken_[i];
      rows_.clear();
      for (; i < taken_.size() && taken_[i].id == first.id &&
             taken_[i].token == first.token + std::ssize(rows_);
           ++i)
        rows_.push_back(taken_[i].row);
      read(first.id, first.token, states_, std::span<const int32_t>(rows_));
    }
  }
  // Its rows are for nobody any more.
  void forget(spec::SequenceId id) {
    take([&](spec::SequenceId other) { return other == id; }, [](auto&&...) {});
  }

  int64_t memory_bytes() const;

 private:
  struct Entry {
    spec::SequenceId id;
    int64_t token = kTaken;
  };
  static constexpr int64_t kTaken = -1;
  struct Taken : Entry {
    int32_t row = 0;
  };

  // Entries are numbered since the log was made; entry i lies in row i % capacity.
  size_t row(int64_t i) const { return static_cast<size_t>(i) % entries_.size(); }
  void start(const TargetStates& like);

  const int64_t most_rows_;
  std::vector<Entry> entries_;
  TargetStates states_{at::Tensor()};  // [capacity, …]
  int64_t begin_ = 0, end_ = 0;        // entries from here to there may still be read
  std::vector<Taken> taken_;           // scratch
  std::vector<int32_t> rows_;          // the same
};

}  // namespace tlt::rollout

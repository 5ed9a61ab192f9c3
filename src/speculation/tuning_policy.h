// TuningPolicy: interface of the policies that choose the arm of the next engine step.
//
// Not here   the policies (throughput_model.h: ours, bandit.h: TLT's BEG-MAB); what the engine
//            calls (tuner.h).
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "drafter/draft_tree.h"
#include "drafter/strategy.h"

namespace tlt::speculation {

// A drafter with a strategy, or `off`: non-speculative decoding.
struct Arm {
  std::string kind = "off";  // Drafter::kind(); "off" with kOff
  drafter::Strategy strategy = drafter::kOff;
  bool is_off() const { return strategy.is_off(); }
  bool operator==(const Arm&) const = default;
};

// Acceptance falls as a response grows, so it is learned by position: tokens of the response so
// far, in these buckets.
inline constexpr std::array<int64_t, 3> kPositionStarts = {512, 2048, 8192};  // of buckets 1, 2, 3
inline constexpr std::array<const char*, 4> kPositionNames = {"0-512", "512-2K", "2K-8K", "8K+"};
inline constexpr size_t kPositions = kPositionNames.size();
inline size_t position_bucket(int64_t position) {
  return static_cast<size_t>(std::ranges::upper_bound(kPositionStarts, position) -
                             kPositionStarts.begin());
}

using Positions = std::array<int64_t, kPositions>;

// The sequences that a step decodes.
struct Load {
  // NOLINTNEXTLINE(google-explicit-constructor): a batch size is a load at the first positions
  Load(int64_t sequences, double tokens = 0)
      : batch(sequences), context(tokens), positions{sequences} {}

  int64_t batch;        // sequences
  double context;       // mean context length: tokens before the step's
  Positions positions;  // by position_bucket(), in the ratio of the sequences
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Load, batch, context, positions)
};

// The outcome of an engine step.
struct StepOutcome {
  int64_t batch = 0;   // sequences that decoded; prefills do not count
  double context = 0;  // mean context length: tokens before the step's
  int64_t tokens = 0;  // new tokens of all sequences, bonus tokens included
  // One for each sequence that was drafted for, also if its tree was empty: all sequences, or at
  // most kExplorationSequences in an exploration step; none when the arm was off.
  std::span<const drafter::VerifiedTree> trees;
  double seconds = 0;            // of the whole step, drafting included
  double draft_seconds = 0;      // part of seconds
  bool has_prompt_rows = false;  // the step did more than decode: costs are not learned from it

  // Token rows of the target's forward pass.
  int64_t rows() const {
    int64_t nodes = 0;
    for (const drafter::VerifiedTree& tree : trees) nodes += std::ssize(tree.nodes);
    return batch + nodes;
  }
};

// Largest number of sequences that an exploration step drafts for.
inline constexpr int64_t kExplorationSequences = 4;

// Arms are identified by their index in the list given at construction.
class TuningPolicy {
 public:
  virtual ~TuningPolicy() = default;

  // `choice` counts the choices of a run and is the counter of random numbers.
  virtual size_t choose(const Load& load, uint64_t choice) = 0;
  // True if the last choice is an exploration step: draft for at most kExplorationSequences.
  virtual bool is_exploration() const { return false; }
  virtual void record(size_t arm, const StepOutcome& outcome) = 0;

  // Predicted tokens per second of the last choice, on the cost table's machine; the row budget
  // weighs token rows with it. 0: the trees are verified whole.
  virtual double tokens_per_second() const { return 0; }

  // Predicted tokens per second of each sequence with the best arm, on the cost table's machine.
  // 0: unknown to this policy.
  virtual double sequence_rate(const Load& /*load*/) { return 0; }

  // Policy or draft model changed.
  virtual void new_weights() = 0;

  // The learned state. restore() takes a state that save() returned, for the same arms and options.
  virtual nlohmann::json save() const = 0;
  virtual void restore(const nlohmann::json& state) = 0;
};

}  // namespace tlt::speculation

// TuningPolicy: interface of the policies that choose the arm of the next engine step.
//
// Not here   the two policies (bandit.h: TLT's, adaptive_chooser.h: ours); whether a step may
//            speculate at all (gate.h); what the engine calls (tuner.h).
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
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

// The sequences that a step decodes.
struct Load {
  // NOLINTNEXTLINE(google-explicit-constructor): a batch size is a load without context
  Load(int64_t sequences, double tokens = 0) : batch(sequences), context(tokens) {}

  int64_t batch;   // sequences
  double context;  // mean context length: tokens before the step's
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

  Load load() const { return {batch, context}; }

  // Token rows of the target's forward pass.
  int64_t rows() const {
    int64_t nodes = 0;
    for (const drafter::VerifiedTree& tree : trees) nodes += std::ssize(tree.nodes);
    return batch + nodes;
  }
};

// Largest number of sequences that an exploration step drafts for.
inline constexpr int64_t kExplorationSequences = 4;

// Statistics are kept per cell of similar batch sizes: two cells per octave, 1 to 1024 sequences.
inline constexpr size_t kBatchCells = 21;
inline size_t batch_cell(int64_t batch) {
  // The largest batch size of each cell: cell i is centred on 2^(i / 2) and ends at
  // 2^(i / 2 + 1 / 4).
  constexpr std::array<int64_t, kBatchCells - 1> kLargest = {
      1, 1, 2, 3, 4, 6, 9, 13, 19, 26, 38, 53, 76, 107, 152, 215, 304, 430, 608, 861};
  return static_cast<size_t>(std::ranges::lower_bound(kLargest, batch) - kLargest.begin());
}

// Bands of similar context lengths: below 128 tokens, then one band per octave.
inline constexpr size_t kContextBands = 8;
inline size_t context_band(double context) {
  return static_cast<size_t>(
      std::clamp(std::floor(std::log2(std::max(context, 1.0) / 64)), 0.0, kContextBands - 1.0));
}

// Arms are identified by their index in the list given at construction.
class TuningPolicy {
 public:
  virtual ~TuningPolicy() = default;

  // `choice` counts the choices of a run and is the counter of random numbers.
  virtual size_t choose(const Load& load, uint64_t choice) = 0;
  // True when the last choice is an exploration step, to draft for at most kExplorationSequences sequences.
  virtual bool is_exploration() const { return false; }
  virtual void record(size_t arm, const StepOutcome& outcome) = 0;

  // Predicted relative slowdown of each sequence, with the best arm, when `more` sequences join the
  // batch. Computed from the costs measured at the start, because later step times change with the
  // machine's load as much as with the batch. 1: unknown to this policy.
  virtual double slowdown(const Load& /*load*/, int64_t /*more*/) { return 1; }

  // Policy or draft model changed.
  virtual void new_weights() = 0;

  // The learned state. restore() takes a state that save() returned, for the same arms and options.
  virtual nlohmann::json save() const = 0;
  virtual void restore(const nlohmann::json& state) = 0;
};

}  // namespace tlt::speculation

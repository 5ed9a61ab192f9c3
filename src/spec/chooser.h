// Chooser: which way to decode the next engine step, learned from the steps before.
//
// Not here   the two choosers (bandit.h: TLT's, adaptive_chooser.h: ours); when speculation
//            is allowed at all (gate.h); what the engine calls (tuner.h).
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

#include "spec/draft_tree.h"
#include "spec/strategy.h"

namespace tlt::spec {

// A way to decode: a drafter and its trees, or no speculation.
struct Arm {
  std::string kind = "off";  // Drafter::kind(); "off" with kOff
  Strategy strategy = kOff;
  bool is_off() const { return strategy.is_off(); }
  bool operator==(const Arm&) const = default;
};

// What a step decodes.
struct Load {
  // NOLINTNEXTLINE(google-explicit-constructor): a batch size is one, of texts without a length
  Load(int64_t sequences, double tokens = 0) : batch(sequences), context(tokens) {}

  int64_t batch;   // sequences
  double context;  // tokens before the step's, of each on average
};

// What became of a sequence's tree.
struct VerifiedTree {
  std::span<const DraftNode> nodes;
  int32_t accepted = DraftTree::kRoot;  // the deepest node of the accepted path

  int32_t accepted_depth() const {
    return accepted < 0 ? 0 : nodes[static_cast<size_t>(accepted)].depth;
  }
};

// What an engine step gave.
struct StepOutcome {
  int64_t batch = 0;   // sequences that decoded, without those whose prompt was read
  double context = 0;  // tokens before the step's, of each on average
  int64_t tokens = 0;  // what it gave them all, bonus tokens included
  // One for each sequence that was drafted for, empty ones too: all of them, or in a try at most
  // kTrySequences; none when the arm was off.
  std::span<const VerifiedTree> trees;
  double seconds = 0;            // of the whole step, drafting included
  double draft_seconds = 0;      // of them
  bool has_prompt_rows = false;  // the seconds say nothing of decoding: not learned from

  Load load() const { return {batch, context}; }

  // Of the target's forward pass.
  int64_t rows() const {
    int64_t nodes = 0;
    for (const VerifiedTree& tree : trees) nodes += std::ssize(tree.nodes);
    return batch + nodes;
  }
};

// For so many sequences an arm is tried whose guesses are in doubt, however many decode.
inline constexpr int64_t kTrySequences = 4;

// Statistics are kept for batches of similar size: two cells an octave, 1 to 1024 sequences.
inline constexpr size_t kBatchCells = 21;
inline size_t batch_cell(int64_t batch) {
  // The largest of each cell: cell i lies around 2^(i / 2) sequences and ends at 2^(i / 2 + 1 / 4).
  constexpr std::array<int64_t, kBatchCells - 1> kLargest = {
      1, 1, 2, 3, 4, 6, 9, 13, 19, 26, 38, 53, 76, 107, 152, 215, 304, 430, 608, 861};
  return static_cast<size_t>(std::ranges::lower_bound(kLargest, batch) - kLargest.begin());
}

// … and what came of arms also for texts of similar length: below 128 tokens, and then an octave
// each.
inline constexpr size_t kContextBands = 8;
inline size_t context_band(double context) {
  return static_cast<size_t>(
      std::clamp(std::floor(std::log2(std::max(context, 1.0) / 64)), 0.0, kContextBands - 1.0));
}

// Arms are known by their place in the list given at construction.
class Chooser {
 public:
  virtual ~Chooser() = default;

  // `choice` counts the choices of a run: random numbers belong to it.
  virtual size_t choose(const Load& load, uint64_t choice) = 0;
  // The last choice is a try, for at most kTrySequences sequences.
  virtual bool is_try() const { return false; }
  virtual void record(size_t arm, const StepOutcome& outcome) = 0;

  // The share of its speed that each sequence loses, with the best arm, when so many more decode
  // beside it: from what was measured at the start, since what steps take later changes with the
  // machine's pace as much as with the batch. 1: such a chooser does not know.
  virtual double slowdown(const Load& /*load*/, int64_t /*more*/) { return 1; }

  // Policy or drafter changed.
  virtual void new_weights() = 0;

  // All that was learned. restore() takes what save() gave, for the same arms and options.
  virtual nlohmann::json save() const = 0;
  virtual void restore(const nlohmann::json& state) = 0;
};

}  // namespace tlt::spec

// SuffixReplay: the suffix drafts of an engine whose sequences have the tokens of a run's responses.
//
// The product's drafter looks them up, so each has the tree that it would have in that engine.
// Speculation changes no token: a draft token is accepted where it is the response's next one,
// whether or not the run speculated there.
//
// Owns       the drafter and its trees, calibrated as in rollout/speculation_policy.h.
// Threading  one thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafter/calibration.h"
#include "drafter/draft_tree.h"
#include "drafter/suffix/suffix_drafter.h"
#include "simulate/simulated_sequence.h"

namespace tlt::simulate {

class SuffixReplay {
 public:
  SuffixReplay(int64_t samples, int64_t max_response_length)
      : samples_(samples), most_(max_response_length) {}

  // Drafts for all, and puts those for which something is found first; returns how many these are.
  // tree(i) is then the one of sequences[i].
  size_t propose(std::span<SimulatedSequence*> sequences, const drafter::Strategy& strategy);
  const drafter::DraftTree& tree(size_t i) const { return trees_[i]; }
  // Prunes tree(i) to its best nodes, and verifies it. `sequence`: the one it is of.
  drafter::VerifiedTree verify(size_t i, int32_t nodes, const SimulatedSequence& sequence);

  // Of the trees' probabilities; record() learns from verified ones.
  const drafter::Calibration& calibration() const { return calibration_; }
  void record(std::span<const drafter::VerifiedTree> trees) { calibration_.record(trees); }

  // The sequence is finished, or leaves the engine.
  void end(const SimulatedSequence& sequence);
  void new_weights() { drafter_.new_weights(); }

 private:
  drafter::SequenceId id_of(const SimulatedSequence& sequence) const;

  const int64_t samples_, most_;
  drafter::SuffixDrafter drafter_{drafter::SuffixOptions{}};
  drafter::Calibration calibration_;
  std::vector<drafter::DraftTree> trees_;
  std::vector<drafter::DraftRequest> requests_;  // scratch
};

}  // namespace tlt::simulate

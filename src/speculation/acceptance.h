// Acceptance: predicts the acceptance length of a drafter's strategies from verified trees.
//
// It does not depend on the batch size, so steps of all sizes count. A verified tree also tells
// what every smaller strategy would have given with the same draft tokens: the path as far as the
// smaller tree has it. For a larger strategy it gives a lower bound, which is extrapolated: each
// further level like those before, a little more for each doubling of the rows.
//
// Threading  engine thread only; no locks; no allocation once warm.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "speculation/cost_model.h"

namespace tlt::speculation {

class Acceptance {
 public:
  explicit Acceptance(const std::vector<drafter::Strategy>& strategies);

  // Trees proposed with strategies[played]. True: they give something else than they used to, and
  // most of what was known has been forgotten.
  bool record(size_t played, std::span<const drafter::VerifiedTree> trees);

  // Tokens a sequence gets from a step, the bonus token included.
  double expected(size_t strategy) const;

  // Relative standard deviation of that expectation.
  double deviation(size_t strategy) const;

  // Keeps the expectations and at most this share and number of the trees they are based on.
  void forget(double kept_share, double most_trees);

  nlohmann::json save() const;
  void restore(const nlohmann::json& state);

 private:
  struct State {
    drafter::Estimate seen;          // trees that tell exactly
    drafter::Estimate extrapolated;  // all trees, extrapolated where they are too small
  };

  // The deepest accepted node that each strategy's tree would have had, into reached_.
  void trace(const drafter::VerifiedTree& tree);
  // Of the node, by depth, the nodes of higher rank; returns how many are its siblings.
  int64_t count_ahead(std::span<const drafter::DraftNode> nodes, int32_t node);
  // Forgets most when the played strategy's trees give something else than they used to.
  bool notice_change(size_t played, double tokens, double trees);
  // What a strategy gives when `played` gave it `tokens` and was accepted to its full depth with
  // probability `full`.
  double continued(size_t strategy, size_t played, double tokens, double full) const;
  bool contains(size_t larger, size_t smaller) const;

  const std::vector<drafter::Strategy> strategies_;
  std::vector<State> states_;  // [strategy]
  drafter::Estimate level_;    // a level after an accepted one is accepted too
  double surprise_ = 0;        // mean of the latest steps, in standard deviations of a step

  // Scratch.
  std::vector<int64_t> ahead_;    // [depth] cumulative
  std::vector<int64_t> reached_;  // [strategy]
  std::vector<int32_t> path_;
  std::vector<double> totals_;  // [strategy]
};

}  // namespace tlt::speculation

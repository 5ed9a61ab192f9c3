// RowBudget: decides which nodes of a step's draft trees are worth a token row of the target's
// forward pass.
//
// A row costs seconds; a node gives a token with its probability. The nodes of all sequences are
// taken in order of probability while the tokens they give exceed the tokens that their seconds
// would give otherwise. So a sequence with a predictable continuation gets many rows and a hopeless
// one none. The drafter's probabilities are calibrated (drafter/calibration.h).
//
// Owns       the drafter's calibration; one object per drafter.
// Not here   pruning the trees: DraftTree::keep_best, which keeps the same nodes.
// Threading  engine thread only; no locks; no allocation once warm.
//
//   budget.split({trees, tokens_per_second, context, max_rows}, costs, keep);
//   for (size_t i …) trees[i].keep_best(keep[i]);
//   … verify …
//   budget.record(verified);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "drafter/calibration.h"
#include "speculation/cost_model.h"
#include "speculation/tuning_policy.h"

namespace tlt::speculation {

class RowBudget {
 public:
  struct Request {
    std::span<const drafter::DraftTree* const> trees;  // one per sequence
    double tokens_per_second = 0;                      // current speed of the engine
    double context = 0;                                // mean context length before the trees
    int64_t max_rows = 0;                              // roots included
  };

  // Fills keep[i] with the number of nodes that tree i should keep. REQUIRES: max_rows is at least
  // the number of trees.
  void split(const Request& request, const CostTable& costs, std::span<int32_t> keep);

  // Learns from the verified trees.
  void record(std::span<const drafter::VerifiedTree> trees);

  // The acceptance rate of nodes of this probability; rises with it.
  double corrected(double probability) const { return calibration_.corrected(probability); }

  nlohmann::json save() const;
  void restore(const nlohmann::json& state);

 private:
  struct Candidate {
    float probability = 0;
    int32_t sequence = 0;
  };

  drafter::Calibration calibration_;
  std::vector<Candidate> candidates_;  // scratch
};

}  // namespace tlt::speculation

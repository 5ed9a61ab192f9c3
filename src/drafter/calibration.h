// Calibration: maps a drafter's probabilities to observed acceptance rates. A drafter may assign
// 0.8 to draft tokens of which half are accepted; this is learned from verified trees.
//
// Owns       acceptance statistics of 16 bins of probabilities, with exponential forgetting.
// Threading  engine thread only; no locks; no allocation.
//
//   calibration.record(verified);     // or, node by node: expect(), accept(), then learn()
//   … calibration.corrected(0.8) …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "drafter/draft_tree.h"
#include "drafter/estimate.h"

namespace tlt::drafter {

class Calibration {
 public:
  Calibration() { find_rates(); }

  // A draft token of this probability was verified; was accepted. Both count at the next learn().
  void expect(double probability);
  void accept(double probability);
  void learn();
  // The same for all nodes of these trees.
  void record(std::span<const VerifiedTree> trees);

  // The acceptance rate of draft tokens of this probability; rises with it. Equal to the
  // probability while nothing has been learned.
  double corrected(double probability) const;

  nlohmann::json save() const;
  void restore(const nlohmann::json& state);

 private:
  static constexpr size_t kBins = 16;  // finer towards 0, where most draft tokens are

  void find_rates();

  std::array<Estimate, kBins> bins_{};  // accepted / expected; weight: expected acceptances
  // corrected() at 0, in the middle of each bin, and at 1.
  std::array<double, kBins + 2> rates_{};
  std::array<double, kBins> accepted_{}, expected_{};  // since learn()
};

}  // namespace tlt::drafter

// Calibration: what a drafter's probabilities are worth. What it calls 0.8 may be true every second
// time; that is learned from what became of its guesses.
//
// Owns       how often guesses of each probability were accepted, older ones forgotten.
// Threading  engine thread only; no locks; no allocation.
//
//   for (guess) calibration.expect(probability);
//   for (guess that was right) calibration.accept(probability);
//   calibration.learn();
//   … calibration.corrected(0.8) …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "spec/cell_means.h"

namespace tlt::spec {

class Calibration {
 public:
  Calibration() { find_rates(); }

  // A guess of this probability was verified, and was accepted. They count at the next learn().
  void expect(double probability);
  void accept(double probability);
  void learn();

  // How often a guess of this probability is accepted; rises with it. Nothing learned: as often as
  // it says.
  double corrected(double probability) const;

  nlohmann::json save() const;
  void restore(const nlohmann::json& state);

 private:
  static constexpr size_t kBins = 16;  // finer towards 0, where most guesses are

  void find_rates();

  std::array<Estimate, kBins> bins_{};  // of accepted per expected guess; weight in expected ones
  // corrected() at 0, in the middle of each bin, and at 1.
  std::array<double, kBins + 2> rates_{};
  std::array<double, kBins> accepted_{}, expected_{};  // since learn()
};

}  // namespace tlt::spec

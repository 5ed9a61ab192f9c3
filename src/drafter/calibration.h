// Calibration: maps a drafter's probabilities to observed acceptance rates. A drafter may assign
// 0.8 to draft tokens of which half are accepted; this is learned from verified trees.
//
// Owns       acceptance statistics of 16 bins of probabilities, with exponential forgetting.
// Threading  engine thread only; no locks; no allocation.
//
//   for (each verified node) calibration.expect(probability);
//   for (each accepted node) calibration.accept(probability);
//   calibration.learn();
//   … calibration.corrected(0.8) …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>

namespace tlt::drafter {

// A mean with forgetting of older numbers; weight: the number of observations it is based on.
struct Estimate {
  double mean = 0;
  double weight = 0;

  void add(double number, double number_weight) {
    if (number_weight <= 0) return;
    weight += number_weight;
    mean += (number - mean) * number_weight / weight;
  }
};
void to_json(nlohmann::json& json, const Estimate& estimate);
void from_json(const nlohmann::json& json, Estimate& estimate);

class Calibration {
 public:
  Calibration() { find_rates(); }

  // A draft token of this probability was verified; was accepted. Both count at the next learn().
  void expect(double probability);
  void accept(double probability);
  void learn();

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

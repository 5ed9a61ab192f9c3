// SPDX-License-Identifier: Apache-2.0
#include "drafter/calibration.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tlt::drafter {
namespace {

// Prior weight, in accepted draft tokens: of the drafter's own probabilities in the mean of all
// bins, and of that mean in each bin.
constexpr double kPriorWeight = 4;
constexpr double kMostWeight = 400;  // accepted draft tokens remembered per bin

size_t bin_of(double probability, size_t bins) {
  return std::min(static_cast<size_t>(std::sqrt(probability) * static_cast<double>(bins)),
                  bins - 1);
}

// The probability at knot 0 … bins + 1: 0, the middles of the bins, 1.
double knot(size_t i, size_t bins) {
  if (i == 0 || i > bins) return i == 0 ? 0 : 1;
  const double root = (static_cast<double>(i) - 0.5) / static_cast<double>(bins);
  return root * root;
}

}  // namespace

void Calibration::find_rates() {
  rates_[0] = 0;
  Estimate all{1, kPriorWeight};
  for (const Estimate& bin : bins_) all.add(bin.mean, bin.weight);
  double factor = 1;
  for (size_t bin = 0; bin < kBins; ++bin) {
    Estimate estimate{all.mean, kPriorWeight};
    estimate.add(bins_[bin].mean, bins_[bin].weight);
    factor = estimate.mean;
    rates_[bin + 1] = std::max(rates_[bin], std::min(1.0, factor * knot(bin + 1, kBins)));
  }
  rates_[kBins + 1] = std::max(rates_[kBins], std::min(1.0, factor));
}

double Calibration::corrected(double probability) const {
  size_t right = bin_of(probability, kBins) + 1;
  if (probability > knot(right, kBins)) ++right;
  const double from = knot(right - 1, kBins), to = knot(right, kBins);
  const double share = std::clamp((probability - from) / (to - from), 0.0, 1.0);
  return rates_[right - 1] + share * (rates_[right] - rates_[right - 1]);
}

void Calibration::expect(double probability) {
  expected_[bin_of(probability, kBins)] += probability;
}

void Calibration::accept(double probability) { accepted_[bin_of(probability, kBins)] += 1; }

void Calibration::record(std::span<const VerifiedTree> trees) {
  for (const VerifiedTree& tree : trees) {
    for (const DraftNode& node : tree.nodes) expect(node.probability);
    for (int32_t i = tree.accepted; i >= 0; i = tree.nodes[static_cast<size_t>(i)].parent)
      accept(tree.nodes[static_cast<size_t>(i)].probability);
  }
  learn();
}

void Calibration::learn() {
  for (size_t bin = 0; bin < kBins; ++bin) {
    if (expected_[bin] <= 0) continue;
    bins_[bin].add(accepted_[bin] / expected_[bin], expected_[bin]);
    bins_[bin].weight = std::min(bins_[bin].weight, kMostWeight);
  }
  accepted_ = expected_ = {};
  find_rates();
}

nlohmann::json Calibration::save() const { return bins_; }

void Calibration::restore(const nlohmann::json& state) {
  state.get_to(bins_);
  find_rates();
}

}  // namespace tlt::drafter

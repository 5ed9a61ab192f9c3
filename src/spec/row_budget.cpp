// SPDX-License-Identifier: Apache-2.0
#include "spec/row_budget.h"

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::spec {
namespace {

constexpr double kPriorNodes = 4;   // accepted ones for which a drafter's word is taken
constexpr double kMostNodes = 400;  // accepted ones remembered of a bin

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

void RowBudget::find_rates() {
  rates_[0] = 0;
  double factor = 1;
  for (size_t bin = 0; bin < kBins; ++bin) {
    Estimate estimate{1, kPriorNodes};
    estimate.add(bins_[bin].mean, bins_[bin].weight);
    factor = estimate.mean;
    rates_[bin + 1] = std::max(rates_[bin], std::min(1.0, factor * knot(bin + 1, kBins)));
  }
  rates_[kBins + 1] = std::max(rates_[kBins], std::min(1.0, factor));
}

double RowBudget::corrected(double probability) const {
  size_t right = bin_of(probability, kBins) + 1;
  if (probability > knot(right, kBins)) ++right;
  const double from = knot(right - 1, kBins), to = knot(right, kBins);
  const double share = std::clamp((probability - from) / (to - from), 0.0, 1.0);
  return rates_[right - 1] + share * (rates_[right] - rates_[right - 1]);
}

void RowBudget::record(std::span<const VerifiedTree> trees) {
  std::array<double, kBins> accepted{}, expected{};
  for (const VerifiedTree& tree : trees) {
    for (const DraftNode& node : tree.nodes)
      expected[bin_of(node.probability, kBins)] += node.probability;
    for (int32_t i = tree.accepted; i >= 0; i = tree.nodes[static_cast<size_t>(i)].parent)
      accepted[bin_of(tree.nodes[static_cast<size_t>(i)].probability, kBins)] += 1;
  }
  for (size_t bin = 0; bin < kBins; ++bin) {
    if (expected[bin] <= 0) continue;
    bins_[bin].add(accepted[bin] / expected[bin], expected[bin]);
    bins_[bin].weight = std::min(bins_[bin].weight, kMostNodes);
  }
  find_rates();
}

void RowBudget::split(const Request& request, const CostTable& costs, std::span<int32_t> keep) {
  const int64_t batch = std::ssize(request.trees);
  TLT_CHECK(std::ssize(keep) == batch && request.max_rows >= batch, request.max_rows, " rows for ",
            batch, " sequences");
  candidates_.clear();
  for (int64_t i = 0; i < batch; ++i) {
    keep[static_cast<size_t>(i)] = 0;
    for (const DraftNode& node : request.trees[static_cast<size_t>(i)]->nodes())
      candidates_.push_back({node.probability, static_cast<int32_t>(i)});
  }
  // Of equal probability, the earlier sequence: the same split on every machine.
  std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.sequence < b.sequence;
  });
  // More rows can pay where one more does not: the kernels' costs have steps.
  const auto value = [&](double tokens, int64_t rows) {
    return tokens - request.tokens_per_second *
                        costs.target_seconds(static_cast<double>(rows), static_cast<double>(batch));
  };
  const int64_t most = std::min(std::ssize(candidates_), request.max_rows - batch);
  double tokens = 0, best_value = value(0, batch);
  int64_t best = 0;
  for (int64_t nodes = 1; nodes <= most; ++nodes) {
    tokens += corrected(candidates_[static_cast<size_t>(nodes - 1)].probability);
    const double at_nodes = value(tokens, batch + nodes);
    if (at_nodes > best_value) best = nodes, best_value = at_nodes;
  }
  for (int64_t i = 0; i < best; ++i)
    ++keep[static_cast<size_t>(candidates_[static_cast<size_t>(i)].sequence)];
}

nlohmann::json RowBudget::save() const { return bins_; }

void RowBudget::restore(const nlohmann::json& state) {
  state.get_to(bins_);
  find_rates();
}

}  // namespace tlt::spec

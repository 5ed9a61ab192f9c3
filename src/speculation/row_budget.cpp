// SPDX-License-Identifier: Apache-2.0
#include "speculation/row_budget.h"

#include <algorithm>

#include "base/check.h"

namespace tlt::speculation {

void RowBudget::split(const Request& request, std::span<int32_t> keep) {
  const int64_t batch = request.sequences;
  TLT_CHECK(
      keep.size() == request.trees.size() && batch >= std::ssize(keep) && request.max_rows >= batch,
      request.max_rows, " rows for ", batch, " sequences and ", keep.size(), " trees");
  candidates_.clear();
  for (size_t i = 0; i < keep.size(); ++i) {
    keep[i] = 0;
    for (const drafter::DraftNode& node : request.trees[i]->nodes())
      candidates_.push_back({node.probability, static_cast<int32_t>(i)});
  }
  // Ties are broken by sequence, so that the split is the same on every machine.
  std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.sequence < b.sequence;
  });
  // Several rows can be worthwhile where one is not: the kernels' costs have steps.
  const auto value = [&](double tokens, int64_t rows) {
    return tokens - request.tokens_per_second *
                        request.costs.target_seconds(static_cast<double>(rows),
                                                     static_cast<double>(batch), request.context);
  };
  const int64_t most = std::min(std::ssize(candidates_), request.max_rows - batch);
  double tokens = 0, best_value = value(0, batch);
  int64_t best = 0;
  for (int64_t nodes = 1; nodes <= most; ++nodes) {
    tokens +=
        request.calibration.corrected(candidates_[static_cast<size_t>(nodes - 1)].probability);
    const double at_nodes = value(tokens, batch + nodes);
    if (at_nodes > best_value) best = nodes, best_value = at_nodes;
  }
  for (int64_t i = 0; i < best; ++i)
    ++keep[static_cast<size_t>(candidates_[static_cast<size_t>(i)].sequence)];
}

}  // namespace tlt::speculation

// SPDX-License-Identifier: Apache-2.0
#include "speculation/row_budget.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace tlt::speculation {

void split_rows(const RowRequest& request, std::span<int32_t> keep, RowScratch& nodes) {
  const int64_t batch = request.sequences;
  TLT_CHECK(
      keep.size() == request.trees.size() && batch >= std::ssize(keep) && request.max_rows >= batch,
      request.max_rows, " rows for ", batch, " sequences and ", keep.size(), " trees");
  // By falling probability; of equals by sequence, so that the split is the same on every machine.
  // Probabilities are not negative, so their bits are in the same order.
  nodes.clear();
  for (size_t i = 0; i < keep.size(); ++i)
    for (const drafter::DraftNode& node : request.trees[i]->nodes())
      nodes.push_back(uint64_t{~std::bit_cast<uint32_t>(node.probability)} << 32 | i);
  std::ranges::sort(nodes);
  const auto probability = [&](uint64_t node) {
    return std::bit_cast<float>(~static_cast<uint32_t>(node >> 32));
  };
  // Several rows can be worthwhile where one is not: the kernels' costs have steps.
  CostTable::Passes passes = request.costs.passes(static_cast<double>(batch), request.context);
  const auto value = [&](double tokens, int64_t rows) {
    return tokens - request.tokens_per_second * passes.seconds(static_cast<double>(rows));
  };
  const auto most = std::min(nodes.size(), static_cast<size_t>(request.max_rows - batch));
  double tokens = 0, best_value = value(0, batch);
  size_t best = 0;
  for (size_t count = 1; count <= most; ++count) {
    tokens += request.calibration.corrected(probability(nodes[count - 1]));
    const double at_count = value(tokens, batch + static_cast<int64_t>(count));
    if (at_count > best_value) best = count, best_value = at_count;
  }
  std::ranges::fill(keep, 0);
  for (size_t i = 0; i < best; ++i) ++keep[nodes[i] & UINT32_MAX];
}

}  // namespace tlt::speculation

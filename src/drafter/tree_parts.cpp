// SPDX-License-Identifier: Apache-2.0
#include "drafter/tree_parts.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace tlt::drafter {

void TreeParts::take(const VerifiedTree& tree) {
  tree_ = tree;
  order_.resize(tree.nodes.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::sort(order_, {}, [&](int32_t i) {
    const DraftNode& node = tree.nodes[static_cast<size_t>(i)];
    return std::tuple(-node.probability, node.depth, i);
  });
}

TreeParts::Part TreeParts::part(const Strategy& strategy) {
  children_.assign(tree_.nodes.size() + 1, 0);
  Part part;
  for (const int32_t i : order_) {
    const DraftNode& node = tree_.nodes[static_cast<size_t>(i)];
    int64_t& siblings = children_[static_cast<size_t>(node.parent + 1)];
    if (static_cast<int64_t>(part.nodes) + 1 < strategy.verify && node.depth <= strategy.depth &&
        siblings >= 0 && siblings < strategy.width)
      ++siblings, ++part.nodes;
    else
      children_[static_cast<size_t>(i + 1)] = -1;
  }
  for (int32_t i = tree_.accepted; i >= 0; i = tree_.nodes[static_cast<size_t>(i)].parent)
    part.accepted += children_[static_cast<size_t>(i + 1)] >= 0;
  return part;
}

}  // namespace tlt::drafter

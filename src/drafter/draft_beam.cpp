// SPDX-License-Identifier: Apache-2.0
#include "drafter/draft_beam.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/check.h"

namespace tlt::drafter {

void DraftBeam::start(const Strategy& strategy, DraftTree* tree) {
  TLT_CHECK(!strategy.is_off() && strategy.depth >= 1 && strategy.width >= 1, to_string(strategy));
  strategy_ = strategy;
  tree_ = tree;
  tree_->clear();
  level_ = 0;
  frontier_.assign(1, DraftTree::kRoot);
  lanes_.assign(1, 0);
}

void DraftBeam::expand(std::span<const int32_t> tokens, std::span<const float> probabilities) {
  const auto width = static_cast<size_t>(strategy_.width);
  TLT_CHECK(!frontier_.empty() && tokens.size() == frontier_.size() * width &&
                probabilities.size() == tokens.size(),
            tokens.size(), " tokens and ", probabilities.size(), " probabilities for ",
            frontier_.size(), " nodes of width ", width);
  const int32_t first = tree_->size();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t parent = frontier_[i / width];
    const float before = parent == DraftTree::kRoot ? 1.0f : (*tree_)[parent].probability;
    tree_->add(parent, tokens[i], before * probabilities[i]);
  }
  frontier_.clear();
  lanes_.clear();
  if (++level_ < strategy_.depth) choose_frontier(first);
}

void DraftBeam::choose_frontier(int32_t first_candidate) {
  const int32_t candidates = tree_->size() - first_candidate;
  const auto lanes = static_cast<int32_t>(std::min<int64_t>(strategy_.width, candidates));
  frontier_.resize(static_cast<size_t>(candidates));
  std::iota(frontier_.begin(), frontier_.end(), first_candidate);
  std::partial_sort(frontier_.begin(), frontier_.begin() + lanes, frontier_.end(),
                    [&](int32_t a, int32_t b) {
                      const float left = (*tree_)[a].probability;
                      const float right = (*tree_)[b].probability;
                      return left != right ? left > right : a < b;
                    });
  frontier_.resize(static_cast<size_t>(lanes));
  const float least = least_useful();
  while (!frontier_.empty() && (*tree_)[frontier_.back()].probability <= least)
    frontier_.pop_back();
  for (const int32_t node : frontier_)
    lanes_.push_back((node - first_candidate) / static_cast<int32_t>(strategy_.width));
}

// A child is at most as probable as its parent and deeper than all present nodes: among equals
// keep_best() drops it first.
float DraftBeam::least_useful() {
  const auto kept = static_cast<size_t>(strategy_.verify - 1);
  if (tree_->nodes().size() < kept) return -1;
  probabilities_.clear();
  for (const DraftNode& node : tree_->nodes()) probabilities_.push_back(node.probability);
  const auto last = probabilities_.begin() + static_cast<std::ptrdiff_t>(kept) - 1;
  std::ranges::nth_element(probabilities_, last, std::greater<>());
  return *last;
}

void DraftBeam::finish() {
  frontier_.clear();
  lanes_.clear();
  tree_->keep_best(static_cast<int32_t>(strategy_.verify - 1));
  tree_->arrange();
}

}  // namespace tlt::drafter

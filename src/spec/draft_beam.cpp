// SPDX-License-Identifier: Apache-2.0
#include "spec/draft_beam.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tlt::spec {

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
  for (const int32_t node : frontier_)
    lanes_.push_back((node - first_candidate) / static_cast<int32_t>(strategy_.width));
}

void DraftBeam::finish() {
  frontier_.clear();
  lanes_.clear();
  tree_->keep_best(static_cast<int32_t>(strategy_.verify - 1));
  tree_->arrange();
}

}  // namespace tlt::spec

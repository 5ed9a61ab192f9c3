// SPDX-License-Identifier: Apache-2.0
#include "drafter/draft_tree.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tlt::drafter {

int32_t DraftTree::add(int32_t parent, int32_t token, float probability, NodeOrigin origin) {
  TLT_CHECK(parent >= kRoot && parent < size(), "parent ", parent, " of ", size(), " nodes");
  const float limit = parent == kRoot ? 1.0f : (*this)[parent].probability;
  const int32_t depth = parent == kRoot ? 1 : (*this)[parent].depth + 1;
  const float cut = probability > 0 ? std::min(probability, limit) : 0;  // NaN is not > 0
  nodes_.push_back(
      {.token = token, .parent = parent, .depth = depth, .probability = cut, .origin = origin});
  return size() - 1;
}

int32_t DraftTree::find_child(int32_t parent, int32_t token) const {
  for (int32_t node = parent + 1; node < size(); ++node)
    if ((*this)[node].parent == parent && (*this)[node].token == token) return node;
  return kNone;
}

void DraftTree::keep_best(int32_t count) {
  if (count >= size()) return;
  count = std::max(count, 0);
  order_.resize(nodes_.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::nth_element(order_.begin(), order_.begin() + count, order_.end(), [&](int32_t a, int32_t b) {
    const DraftNode& left = (*this)[a];
    const DraftNode& right = (*this)[b];
    if (left.probability != right.probability) return left.probability > right.probability;
    return left.depth != right.depth ? left.depth < right.depth : a < b;
  });
  std::sort(order_.begin(), order_.begin() + count);
  place_.assign(nodes_.size(), kNone);
  for (int32_t i = 0; i < count; ++i)
    place_[static_cast<size_t>(order_[static_cast<size_t>(i)])] = i;
  move_to_places(count);
}

// A subtree is contiguous, so a node's new index follows from its parent's and the sizes of the
// siblings before it. In the order (parent, probability) a parent is placed before its children.
void DraftTree::arrange() {
  subtree_.assign(nodes_.size(), 1);
  for (int32_t node = size(); node-- > 0;)
    if (const int32_t parent = (*this)[node].parent; parent != kRoot)
      subtree_[static_cast<size_t>(parent)] += subtree_[static_cast<size_t>(node)];
  order_.resize(nodes_.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    const DraftNode& left = (*this)[a];
    const DraftNode& right = (*this)[b];
    if (left.parent != right.parent) return left.parent < right.parent;
    if (left.probability != right.probability) return left.probability < right.probability;
    return a > b;
  });
  place_.resize(nodes_.size());
  next_.assign(nodes_.size() + 1, 0);
  for (const int32_t node : order_) {
    const auto i = static_cast<size_t>(node);
    int32_t& next = next_[static_cast<size_t>(nodes_[i].parent + 1)];
    place_[i] = next;
    next_[i + 1] = next + 1;
    next += subtree_[i];
  }
  move_to_places(size());
}

void DraftTree::move_to_places(int32_t count) {
  arranged_.resize(static_cast<size_t>(count));
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (place_[i] == kNone) continue;
    DraftNode& moved = arranged_[static_cast<size_t>(place_[i])];
    moved = nodes_[i];
    if (moved.parent != kRoot) moved.parent = place_[static_cast<size_t>(moved.parent)];
  }
  nodes_.swap(arranged_);
}

bool DraftTree::is_depth_first() const {
  for (int32_t node = 0; node < size(); ++node) {
    const int32_t parent = (*this)[node].parent;
    // The last node before this one that has a smaller depth.
    int32_t before = node - 1;
    while (before >= 0 && (*this)[before].depth >= (*this)[node].depth)
      before = (*this)[before].parent;
    if (before != parent) return false;
  }
  return true;
}

void DraftTree::check() const {
  for (int32_t node = 0; node < size(); ++node) {
    const auto& [token, parent, depth, probability, origin] = (*this)[node];
    TLT_CHECK(parent >= kRoot && parent < node, "node ", node, " comes before its parent ", parent);
    const float limit = parent == kRoot ? 1.0f : (*this)[parent].probability;
    const int32_t parent_depth = parent == kRoot ? 0 : (*this)[parent].depth;
    TLT_CHECK(depth == parent_depth + 1, "node ", node, " has depth ", depth, ", its parent ",
              parent_depth);
    TLT_CHECK(probability >= 0 && probability <= limit, "node ", node, " has probability ",
              probability, ", its parent ", limit);
    TLT_CHECK(find_child(parent, token) == node, "node ", node, " has a sibling with token ",
              token);
  }
}

int64_t DraftTree::memory_bytes() const {
  const size_t indices =
      order_.capacity() + place_.capacity() + subtree_.capacity() + next_.capacity();
  return static_cast<int64_t>((nodes_.capacity() + arranged_.capacity()) * sizeof(DraftNode) +
                              indices * sizeof(int32_t));
}

}  // namespace tlt::drafter

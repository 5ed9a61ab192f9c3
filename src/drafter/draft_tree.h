// DraftTree: draft tokens of one sequence as a tree, verified in one forward pass of the target.
//
// The root is the sequence's last committed token and not a node. A node is a draft token, its
// parent (kRoot or an earlier node) and the estimated probability that the path to it is accepted,
// which is at most its parent's.
//
// Owns       the nodes; clear() keeps the memory, so that a tree is reused from step to step.
// Invariant  parents come before their children; siblings have different tokens.
//
//   tree.clear();
//   const int32_t a = tree.add(DraftTree::kRoot, token, 0.7f);
//   tree.add(a, next, 0.5f);
//   tree.keep_best(/*nodes=*/47);   // the most probable; never an orphan
//   tree.arrange();                 // the order the target's attention wants
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tlt::drafter {

// The origin of a node of a mixed tree (drafter/mixed_drafter.h); empty elsewhere.
struct NodeOrigin {
  float claimed = 0;      // probability before calibration
  uint32_t drafters = 0;  // set of drafters that proposed the node; bit i: drafter i
};

struct DraftNode {
  int32_t token = 0;
  int32_t parent = 0;
  int32_t depth = 1;  // 1: child of the root
  float probability = 0;
  NodeOrigin origin = {};
};

class DraftTree {
 public:
  static constexpr int32_t kRoot = -1;

  void clear() { nodes_.clear(); }
  bool empty() const { return nodes_.empty(); }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  const DraftNode& operator[](int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  const std::vector<DraftNode>& nodes() const { return nodes_; }

  // The new node's index. REQUIRES: the parent exists and has no child with this token.
  // `probability` is cut to the parent's (the root's is 1); NaN counts as 0.
  int32_t add(int32_t parent, int32_t token, float probability, NodeOrigin origin = {});

  // The child with this token, or kNone. A few comparisons per node.
  static constexpr int32_t kNone = kRoot - 1;
  int32_t find_child(int32_t parent, int32_t token) const;

  // Keeps the `count` most probable nodes; of equals the less deep, then the earlier one, so a kept
  // node's parent is always kept (EAGLE-2). The order of the kept nodes does not change.
  void keep_best(int32_t count);

  // Sorts depth first, a node's most probable child last (of equals the one added first). When the
  // nodes are then stored one after the other, each in the slot of its position, a node finds
  // exactly its ancestors in the slots before its own (ops/attention.h), and the slots finally
  // contain the most probable path.
  void arrange();

  // Whether the nodes are in the depth-first order of arrange().
  bool is_depth_first() const;

  // Throws Error when the invariant is broken.
  void check() const;

  int64_t memory_bytes() const;

 private:
  // Moves node i to place_[i] and updates parents; nodes with kNone are dropped.
  void move_to_places(int32_t count);

  std::vector<DraftNode> nodes_;
  // Scratch of keep_best and arrange.
  std::vector<int32_t> order_;
  std::vector<int32_t> place_;    // new index, by old node
  std::vector<int32_t> subtree_;  // number of nodes, itself included
  std::vector<int32_t> next_;     // new index of the next child, by old parent + 1
  std::vector<DraftNode> arranged_;
};

// The depth of the deepest node; 0: there is none.
inline int32_t depth_of(std::span<const DraftNode> nodes) {
  int32_t depth = 0;
  for (const DraftNode& node : nodes) depth = std::max(depth, node.depth);
  return depth;
}

// The outcome of verifying a draft tree.
struct VerifiedTree {
  std::span<const DraftNode> nodes;
  int32_t accepted = DraftTree::kRoot;  // last node of the accepted path
  int64_t position = 0;                 // of the root in the response, in tokens

  int32_t accepted_depth() const {
    return accepted < 0 ? 0 : nodes[static_cast<size_t>(accepted)].depth;
  }
};

}  // namespace tlt::drafter

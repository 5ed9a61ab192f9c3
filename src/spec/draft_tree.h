// DraftTree: guesses at how a sequence goes on, verified together in one forward pass of the
// target.
//
// The root is the sequence's last committed token and not a node. A node is a token, its parent
// (kRoot or an earlier node) and the estimated probability that the target's own text runs through
// it, which is at most its parent's.
//
// Owns       the nodes; clear() keeps the memory, so a tree is made once a sequence and refilled.
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

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tlt::spec {

// Who guessed a node of a mixed tree (spec/mixed_drafter.h); nothing elsewhere.
struct Guess {
  float claimed = 0;      // the probability before it was corrected
  uint32_t guessers = 0;  // bit i: drafter i
};

struct DraftNode {
  int32_t token = 0;
  int32_t parent = 0;
  int32_t depth = 1;  // 1: child of the root
  float probability = 0;
  Guess guess = {};
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
  int32_t add(int32_t parent, int32_t token, float probability, Guess guess = {});

  // The child with this token, or kRoot - 1 when there is none. A few comparisons a node.
  static constexpr int32_t kNone = kRoot - 1;
  int32_t find_child(int32_t parent, int32_t token) const;

  // Keeps the `count` nodes of highest probability; of equals the less deep, then the earlier one,
  // so a kept node's parent is always kept (EAGLE-2). The order of the others stays.
  void keep_best(int32_t count);

  // Depth first, a node's most probable child last (of equals the one added first). Then every node
  // comes right after its whole path as far as the slots of the KV cache are concerned: when the
  // nodes are stored one after the other, each at the slot of its position, a node finds exactly
  // its ancestors there (ops/attention.h); and what is left behind at the end is the most probable
  // path.
  void arrange();

  // Whether the nodes stand depth first, as arrange() leaves them.
  bool is_depth_first() const;

  // Throws Error when the invariant is broken.
  void check() const;

  int64_t memory_bytes() const;

 private:
  // Moves node i to place_[i], parents with it; those with kNone are dropped.
  void move_to_places(int32_t count);

  std::vector<DraftNode> nodes_;
  // Scratch of keep_best and arrange.
  std::vector<int32_t> order_;
  std::vector<int32_t> place_;    // by old node
  std::vector<int32_t> subtree_;  // nodes, itself included
  std::vector<int32_t> next_;     // by old parent + 1: where its next child goes
  std::vector<DraftNode> arranged_;
};

}  // namespace tlt::spec

// NgramTrie: all n-grams seen, up to a length, with their counts and recency (FastRL).
//
// A node is the path of tokens from the root. All nodes are in one eviction order, and a visited
// node moves directly after its parent in it: so a path that starts now moves to the front with all
// its nodes, a parent is always before its children, and the last node is always a leaf. When the
// pool is full, that one is evicted. Few nodes have more than kListed children; only the children
// of those are in a hash table, so a new n-gram needs no look-up.
//
// Threading  engine thread only; no locks.
// Invariant  check().
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tlt::drafter {

class NgramTrie {
 public:
  using Node = int32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = -1;

  // A reference to a node that expires with its eviction. Default: none.
  struct Cursor {
    Node node = kNone;
    uint32_t life = 0;
  };

  explicit NgramTrie(int64_t most_nodes);

  Cursor root() const { return {kRoot, 0}; }
  bool is_there(Cursor cursor) const {
    return cursor.node != kNone && at(cursor.node).life == cursor.life;
  }

  // Counts one more occurrence of the parent's child with this token, created if needed, and makes
  // it the newest of its siblings. None when the parent was evicted or the pool has no node left.
  Cursor visit(Cursor parent, int32_t token);

  // kNone when there is no such child.
  Node find_child(Node parent, int32_t token) const;
  // The children of a node, newest first; kNone ends the list.
  Node newest_child(Node node) const { return at(node).newest_child; }
  Node older_sibling(Node node) const { return at(node).older_sibling; }

  int32_t token(Node node) const { return at(node).token; }
  int64_t occurrences(Node node) const { return at(node).occurrences; }

  int64_t nodes() const { return static_cast<int64_t>(nodes_.size()) - 1; }  // without the root
  int64_t memory_bytes() const;

  // Throws Error when a parent is not before its children in the eviction order, or when lists and
  // table differ. Slow.
  void check() const;

 private:
  struct Entry {
    int32_t token = 0;
    Node parent = kNone;
    Node newest_child = kNone;
    Node newer_sibling = kNone;
    Node older_sibling = kNone;
    Node previous = kNone;  // in the eviction order
    Node next = kNone;
    uint32_t occurrences = 0;
    uint32_t life = 0;
    int32_t children = 0;
    bool in_table = false;  // its children are in the hash table
  };

  const Entry& at(Node node) const { return nodes_[static_cast<size_t>(node)]; }
  Entry& at(Node node) { return nodes_[static_cast<size_t>(node)]; }

  Node make_child(Node parent, int32_t token);
  Node allocate_node(Node keep);
  void remove_from_siblings(Node node);
  void make_newest(Node node);
  void remove_from_order(Node node);
  void insert_after(Node node, Node parent);

  size_t home_slot(Node parent, int32_t token) const;
  void enter_slot(Node node);
  void leave_slot(Node node);
  void grow_slots();

  int64_t most_nodes_ = 0;
  std::vector<Entry> nodes_;
  Node last_ = kRoot;        // end of the eviction order; the root is its first
  std::vector<Node> slots_;  // by parent and token, open addressing; a power of two
  size_t slots_used_ = 0;
};

}  // namespace tlt::drafter

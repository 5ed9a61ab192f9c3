// SPDX-License-Identifier: Apache-2.0
#include "drafter/ngram/ngram_trie.h"

#include "base/check.h"

namespace tlt::drafter {
namespace {

constexpr size_t kFirstSlots = 1024;
constexpr int32_t kListed = 4;  // children found by walking their list

}  // namespace

NgramTrie::NgramTrie(int64_t most_nodes) : most_nodes_(most_nodes) {
  TLT_CHECK(most_nodes >= 1 && most_nodes < INT32_MAX, "most_nodes ", most_nodes);
  nodes_.emplace_back();  // the root
  slots_.assign(kFirstSlots, kNone);
}

NgramTrie::Cursor NgramTrie::visit(Cursor parent, int32_t token) {
  if (!is_there(parent)) return {};
  Node node = find_child(parent.node, token);
  if (node == kNone) {
    node = make_child(parent.node, token);
    if (node == kNone) return {};
  } else {
    remove_from_siblings(node);
    remove_from_order(node);
  }
  make_newest(node);
  insert_after(node, parent.node);
  Entry& entry = at(node);
  if (entry.occurrences < UINT32_MAX) ++entry.occurrences;
  return {node, entry.life};
}

NgramTrie::Node NgramTrie::find_child(Node parent, int32_t token) const {
  Node child = at(parent).newest_child;
  if (child == kNone || at(child).token == token) return child;
  if (!at(parent).in_table) {
    while (child != kNone && at(child).token != token) child = at(child).older_sibling;
    return child;
  }
  for (size_t slot = home_slot(parent, token);; slot = (slot + 1) & (slots_.size() - 1)) {
    const Node node = slots_[slot];
    if (node == kNone || (at(node).parent == parent && at(node).token == token)) return node;
  }
}

NgramTrie::Node NgramTrie::make_child(Node parent, int32_t token) {
  const Node node = allocate_node(/*keep=*/parent);
  if (node == kNone) return kNone;
  Entry& entry = at(node);
  entry = {.token = token, .parent = parent, .life = entry.life};
  Entry& owner = at(parent);
  if (++owner.children > kListed && !owner.in_table) {
    for (Node sibling = owner.newest_child; sibling != kNone; sibling = at(sibling).older_sibling)
      enter_slot(sibling);
    owner.in_table = true;
  }
  if (owner.in_table) enter_slot(node);
  return node;
}

// A new node, or the evicted last node of the eviction order, which is a leaf. kNone when that is
// the node to keep.
NgramTrie::Node NgramTrie::allocate_node(Node keep) {
  if (nodes() < most_nodes_) {
    nodes_.emplace_back();
    return static_cast<Node>(nodes());
  }
  const Node node = last_;
  if (node == keep) return kNone;
  Entry& owner = at(at(node).parent);
  --owner.children;
  if (owner.in_table) leave_slot(node);
  remove_from_siblings(node);
  remove_from_order(node);
  ++at(node).life;
  return node;
}

void NgramTrie::remove_from_siblings(Node node) {
  const Entry& entry = at(node);
  if (entry.newer_sibling == kNone) {
    at(entry.parent).newest_child = entry.older_sibling;
  } else {
    at(entry.newer_sibling).older_sibling = entry.older_sibling;
  }
  if (entry.older_sibling != kNone) at(entry.older_sibling).newer_sibling = entry.newer_sibling;
}

void NgramTrie::make_newest(Node node) {
  Entry& entry = at(node);
  Node& newest = at(entry.parent).newest_child;
  entry.newer_sibling = kNone;
  entry.older_sibling = newest;
  if (newest != kNone) at(newest).newer_sibling = node;
  newest = node;
}

void NgramTrie::remove_from_order(Node node) {
  const Entry& entry = at(node);
  at(entry.previous).next = entry.next;
  (entry.next == kNone ? last_ : at(entry.next).previous) = entry.previous;
}

void NgramTrie::insert_after(Node node, Node parent) {
  Entry& entry = at(node);
  entry.previous = parent;
  entry.next = at(parent).next;
  (entry.next == kNone ? last_ : at(entry.next).previous) = node;
  at(parent).next = node;
}

size_t NgramTrie::home_slot(Node parent, int32_t token) const {
  uint64_t hash =
      static_cast<uint64_t>(static_cast<uint32_t>(parent)) << 32 | static_cast<uint32_t>(token);
  hash *= 0x9e3779b97f4a7c15;
  hash ^= hash >> 29;
  hash *= 0xff51afd7ed558ccd;
  return (hash >> 32) & (slots_.size() - 1);
}

void NgramTrie::enter_slot(Node node) {
  if (3 * ++slots_used_ > 2 * slots_.size()) grow_slots();
  size_t slot = home_slot(at(node).parent, at(node).token);
  while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = node;
}

// Closes the gap: moves up later entries of the probe sequence that may be found from it.
void NgramTrie::leave_slot(Node node) {
  const size_t mask = slots_.size() - 1;
  size_t gap = home_slot(at(node).parent, at(node).token);
  while (slots_[gap] != node) gap = (gap + 1) & mask;
  for (size_t slot = (gap + 1) & mask; slots_[slot] != kNone; slot = (slot + 1) & mask) {
    const size_t home = home_slot(at(slots_[slot]).parent, at(slots_[slot]).token);
    if (((slot - home) & mask) < ((slot - gap) & mask)) continue;
    slots_[gap] = slots_[slot];
    gap = slot;
  }
  slots_[gap] = kNone;
  --slots_used_;
}

void NgramTrie::grow_slots() {
  std::vector<Node> old(slots_.size() * 2, kNone);
  old.swap(slots_);
  for (const Node node : old) {
    if (node == kNone) continue;
    size_t slot = home_slot(at(node).parent, at(node).token);
    while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = node;
  }
}

int64_t NgramTrie::memory_bytes() const {
  return static_cast<int64_t>(nodes_.capacity() * sizeof(Entry) + slots_.capacity() * sizeof(Node));
}

void NgramTrie::check() const {
  std::vector<bool> passed(nodes_.size());
  passed[kRoot] = true;
  int64_t ordered = 0;
  Node before = kRoot;
  for (Node node = at(kRoot).next; node != kNone; before = node, node = at(node).next) {
    const Node parent = at(node).parent;
    TLT_CHECK(passed[static_cast<size_t>(parent)], "node ", node, " is before its parent ", parent);
    TLT_CHECK(at(node).previous == before, "node ", node, " has a wrong previous node");
    TLT_CHECK(find_child(parent, at(node).token) == node, "node ", node, " cannot be found");
    passed[static_cast<size_t>(node)] = true;
    ++ordered;
  }
  TLT_CHECK(before == last_ && ordered == nodes(), ordered, " of ", nodes(), " nodes in the order");
  int64_t listed = 0;
  for (Node parent = kRoot; parent <= nodes(); ++parent) {
    Node newer = kNone;
    for (Node node = newest_child(parent); node != kNone;
         newer = node, node = older_sibling(node)) {
      TLT_CHECK(at(node).parent == parent && at(node).newer_sibling == newer, "child ", node,
                " of node ", parent);
      ++listed;
    }
  }
  TLT_CHECK(listed == nodes(), listed, " of ", nodes(), " nodes are children");
}

}  // namespace tlt::drafter

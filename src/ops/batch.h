// Batch: the token rows of one forward pass, packed without padding, and the sequence each row
// belongs to.
//
// The engine fills it with prompt chunks and decode rows of many sequences, the trainer with whole
// sequences; the model does not distinguish them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tlt::ops {

using PageId = int32_t;

// Slots of a page of the KV cache, and positions in a block of attention. Blocks are cut by logical
// position, so a page is a block, and the arithmetic of a query does not depend on where its keys
// are in memory.
inline constexpr int64_t kPageSlots = 16;
// Number of pages that hold this many positions.
inline int64_t pages_for(int64_t positions) { return (positions + kPageSlots - 1) / kPageSlots; }

// Consecutive token rows of one sequence: consecutive positions, or a draft tree. Keys of positions
// before first_position are in the cache already; the forward pass stores those of the rows
// themselves.
//
// The rows of a tree are its nodes, the root first, in depth-first order; a row's position is the
// root's plus its depth. A row attends to the keys before the root and to its own path.
//
// In training, segments with a common beginning have a shared prefix: a segment of its own, whole
// pages from position 0. The suffixes that continue it follow it.
struct Segment {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t first_position = 0;
  const PageId* pages = nullptr;  // page i holds positions 16 i .. 16 i + 15; enough for all rows
  int32_t levels = 0;             // of a tree, including the root's; 0: consecutive positions
  int32_t first_tree_row = 0;     // of a tree: number of rows of other trees before it
  int32_t shared_prefix = -1;     // segment that computes the positions before the first; -1: none

  bool is_tree() const { return levels > 0; }
  int32_t end_position() const { return first_position + (is_tree() ? levels : rows); }
};

struct Batch {
  std::vector<int32_t> tokens;     // [T]
  std::vector<int32_t> positions;  // [T]
  std::vector<Segment> segments;
  int32_t tree_rows = 0;  // of all trees
  int32_t suffixes = 0;   // segments with a shared prefix

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  void clear() {
    tokens.clear();
    positions.clear();
    segments.clear();
    tree_rows = 0;
    suffixes = 0;
  }
  // Appends a segment of consecutive tokens. `pages` must outlive the batch.
  void add(const int32_t* first_token, int32_t count, int32_t first_position, const PageId* pages) {
    segments.push_back({.first_row = static_cast<int32_t>(rows()),
                        .rows = count,
                        .first_position = first_position,
                        .pages = pages});
    tokens.insert(tokens.end(), first_token, first_token + count);
    for (int32_t i = 0; i < count; ++i) positions.push_back(first_position + i);
  }
  // Appends a segment that continues the shared prefix with index `shared_prefix`. REQUIRES: since
  // that prefix only other suffixes of it were appended; the prefix is whole pages, which are the
  // first of `pages`.
  void add_suffix(const int32_t* first_token, int32_t count, int32_t shared_prefix,
                  const PageId* pages) {
    add(first_token, count, segments[static_cast<size_t>(shared_prefix)].rows, pages);
    segments.back().shared_prefix = shared_prefix;
    ++suffixes;
  }
  // Appends a tree of its root only; add_node() appends the nodes below it.
  void add_tree(int32_t token, int32_t position, const PageId* pages) {
    add(&token, 1, position, pages);
    segments.back().levels = 1;
    segments.back().first_tree_row = tree_rows++;
  }
  // REQUIRES: depth-first order; a child of the root has depth 1.
  void add_node(int32_t token, int32_t depth) {
    Segment& tree = segments.back();
    tokens.push_back(token);
    positions.push_back(tree.first_position + depth);
    tree.levels = std::max(tree.levels, depth + 1);
    ++tree.rows;
    ++tree_rows;
  }
};

}  // namespace tlt::ops

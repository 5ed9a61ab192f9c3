// Batch: the rows of one forward pass, packed without padding, and which sequence each belongs to.
//
// The engine fills it with prompt chunks and decode rows of many sequences, the trainer with whole
// sequences; the model does not know the difference.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace tlt::ops {

using PageId = int32_t;

// Tokens in a page of the KV cache, and in a block of attention: blocks are cut by logical
// position, so a page is a block and the arithmetic of a query does not depend on where its keys
// lie.
inline constexpr int64_t kPageSlots = 16;

// Consecutive rows that are consecutive positions of one sequence. Keys of positions before
// first_position are in the cache already; those of the rows themselves are stored by the pass.
struct Segment {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t first_position = 0;
  const PageId* pages = nullptr;  // page i holds positions 16 i .. 16 i + 15; enough for all rows
};

struct Batch {
  std::vector<int32_t> tokens;     // [T]
  std::vector<int32_t> positions;  // [T]
  std::vector<Segment> segments;

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  void clear() {
    tokens.clear();
    positions.clear();
    segments.clear();
  }
  // Appends a segment of consecutive tokens. `pages` must outlive the batch.
  void add(const int32_t* first_token, int32_t count, int32_t first_position, const PageId* pages) {
    segments.push_back({static_cast<int32_t>(rows()), count, first_position, pages});
    tokens.insert(tokens.end(), first_token, first_token + count);
    for (int32_t i = 0; i < count; ++i) positions.push_back(first_position + i);
  }
};

}  // namespace tlt::ops

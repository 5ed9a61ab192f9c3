// Parameters of the attention kernels, as the table of a device's kernels takes them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cpu/kernels.h"

namespace tlt::ops::cuda {

// Positions of a split. A query computes each split by itself and adds them in order, whichever
// blocks compute them. Part of every result.
constexpr int64_t kSplit = 256;
constexpr int64_t splits_for(int64_t positions) { return (positions + kSplit - 1) / kSplit; }

// Pairs of a query row and a head that a warp computes together.
constexpr int kTile = 16;

constexpr float kLog2OfE = 1.44269504088896341f;

// Attention of the rows of a batch over the KV cache of a layer. Strides and offset in elements.
struct AttentionRowsOf {
  const void* qkv = nullptr;    // [rows, (N + 2 K) H], rotated
  const void* pages = nullptr;  // [P, …, K, 2, 16, H]
  const void* tree = nullptr;   // [tree rows, 2, K, H]; null: no trees
  void* out = nullptr;          // [rows, N, H]
  float* lse = nullptr;         // [rows, N]; may be null
  float* parts = nullptr;  // [rows, splits, N, H + 2], scratch; null: a block computes all splits

  // By row. `lists` has page numbers and tree rows; the others are indices into it, or positions.
  const int64_t* lists = nullptr;
  const int64_t* positions = nullptr;  // its last visible one; < 0: a row of padding, written as 0
  const int64_t* tables = nullptr;     // where its pages start; the same for the rows of a segment
  const int64_t* roots = nullptr;      // from this position on its keys are in `tree`
  const int64_t* paths = nullptr;      // where its path starts: the tree row of each of them

  int64_t page_stride = 0, layer_offset = 0;
  int64_t rows = 0, splits = 0;
  int64_t heads = 0, kv_heads = 0, head_size = 0;
  int64_t tile_rows = 1;  // query rows of a warp, at most kTile / group
  int64_t tiles = 1;      // warps of a block that have rows of their own
  float scale = 0;        // of the scores, times kLog2OfE

  template <class Visit>
  void pointers(const Visit& visit) {
    visit(qkv), visit(pages), visit(tree), visit(out), visit(lse), visit(parts);
    visit(lists), visit(positions), visit(tables), visit(roots), visit(paths);
  }
};

// Rows of keys of a block of the backward pass.
constexpr int64_t kKeyRows = 64;

// The gradient of the rotated q, k and v of training rows, whose segments start at
// position 0 or at the end of their shared prefix.
struct AttentionGradientOf {
  AttentionRowsOf rows;                 // of the forward pass; reads out and lse, writes neither
  const void* d_out = nullptr;          // [rows, N, H]
  float* deltas = nullptr;              // [rows, N], scratch
  float* d_q = nullptr;                 // [rows, N, H]
  float* d_k = nullptr;                 // [rows, K, H]
  float* d_v = nullptr;                 // [rows, K, H]
  const int64_t* tiles = nullptr;       // every kKeyRows-th row of each segment
  const int64_t* ends = nullptr;        // by row: the row after its segment's last
  const int64_t* seen_until = nullptr;  // by row: the row after the last that sees its key
  int64_t key_tiles = 0;

  template <class Visit>
  void pointers(const Visit& visit) {
    rows.pointers(visit);
    visit(d_out), visit(deltas), visit(d_q), visit(d_k), visit(d_v);
    visit(tiles), visit(ends), visit(seen_until);
  }
};

struct AttentionKernels {
  bool (*has_head_size)(int64_t head_size) = nullptr;
  void (*forward)(Type type, const AttentionRowsOf& rows) = nullptr;
  void (*backward)(Type type, const AttentionGradientOf& gradient) = nullptr;
};

}  // namespace tlt::ops::cuda

// Attention over the paged KV cache: one kernel for decode rows, draft trees, prompt chunks and
// training.
//
// A query walks its keys in order of logical position, 16 at a time, with an online softmax in
// float32, and starts again every kSplit positions; the splits are then added in order. Keys before
// the root of a draft tree are in pages, those after it are the tree rows of the query's path, so a
// row of a tree walks exactly the keys that the same token walks without speculation. Keys that
// others in the warp see have weight 0 and change no bit. So a row's result does not depend on the
// batch, on chunks, on the tree or on which block computes a split.
//
// A warp has 16 pairs of a query row and a head (attention_warp.h); the warps of a block share the
// keys that they read.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/attention_warp.h"

namespace tlt::ops::cuda {

// Of a row of `parts`: out, top and sum of a split's pair.
template <int H>
TLT_DEVICE float* part_of(const AttentionRowsOf& p, int64_t row, int64_t split, int64_t head) {
  return p.parts + ((row * p.splits + split) * p.heads + head) * (H + 2);
}

TLT_DEVICE float lse_of(float top, float sum) { return times(top + log2f(sum), kLogOf2); }

TLT_DEVICE int min_of(int a, int b) { return a < b ? a : b; }
TLT_DEVICE int max_of(int a, int b) { return a > b ? a : b; }

// What a block and its warp compute.
struct AttentionWork {
  RowRange rows, warp;
  int kv_head;
  Pair pairs[2];
};

TLT_DEVICE AttentionWork work_of(const Block& block, const AttentionRowsOf& p, int rows_block) {
  AttentionWork work;
  const int group = static_cast<int>(p.heads / p.kv_heads), all = static_cast<int>(p.rows);
  const int tile = static_cast<int>(p.tile_rows), tiles = static_cast<int>(p.tiles);
  work.kv_head = block.index() % static_cast<int>(p.kv_heads);
  const int first = rows_block * tile * tiles;
  work.rows = {first, min_of(first + tile * tiles, all)};
  const int own = min_of(first + min_of(block.warp(), tiles) * tile, work.rows.end);
  work.warp = {own, min_of(own + tile, work.rows.end)};
  TLT_UNROLL_LOOP
  for (int half = 0; half < 2; ++half) {
    const int m = block.lane() / 4 + half * 8, row = own + m / group;
    const bool is_real = m < tile * group && row < work.warp.end;
    work.pairs[half] = {is_real ? row : first, work.kv_head * group + (is_real ? m % group : 0),
                        is_real ? static_cast<int>(p.positions[row]) : kNoRow};
  }
  return work;
}

TLT_DEVICE int last_of(const AttentionRowsOf& p, const RowRange& rows) {
  int last = -1;
  for (int row = rows.begin; row < rows.end; ++row)
    last = max_of(last, static_cast<int>(p.positions[row]));
  return last;
}

// The rows from `begin` on that are of its segment: those with its table of pages.
TLT_DEVICE RowRange segment_from(const AttentionRowsOf& p, int begin, int end) {
  RowRange segment = {begin, begin + 1};
  while (segment.end < end && p.tables[segment.end] == p.tables[begin]) ++segment.end;
  return segment;
}

// Keys of the rows, the same for all of them, at positions first .. end - 1.
struct Walk {
  RowRange rows;
  int first, end;
};

// KV entries in shared memory, which all threads of a block load.
template <class T, int H>
struct AttentionStage {
  static constexpr int kStaged = sizeof(T) == 2 ? 64 : 32;
  static constexpr int kRow = H + Vector<T>::kElements;  // lanes of a fragment in different banks
  static constexpr int kVectors = H / Vector<T>::kElements;
  using Multiply = Products<T, H, kRow>;

  alignas(16) T keys[kStaged * kRow];
  alignas(16) T values[kStaged * kRow];
  typename Multiply::Shared products;

  // from(key, part): where the key (part 0) or value (part 1) with this number begins; null: zeros.
  template <class From>
  TLT_DEVICE void load(const Block& block, const From& from) {
    TLT_UNROLL_BY_4
    for (int i = block.thread(); i < 2 * kStaged * kVectors; i += kAttentionWarps * kWarp) {
      const int vector = i % kVectors, key = i / kVectors % kStaged, part = i / kVectors / kStaged;
      Vector<T> value = {};
      if (const T* begin = from(key, part))
        value = reinterpret_cast<const Vector<T>*>(begin)[vector];
      T* to = (part ? values : keys) + key * kRow + vector * Vector<T>::kElements;
      *reinterpret_cast<Vector<T>*>(to) = value;
    }
  }
};

// The key (part 0) or value (part 1) of a walk's position. Null after its end: 0 times whatever is
// there may be NaN.
template <class T, int H>
struct CacheEntries {
  const AttentionRowsOf& p;
  const Walk& walk;
  int kv_head;

  TLT_DEVICE const T* operator()(int key, int part) const {
    const int position = walk.first + key, row = walk.rows.begin;
    if (position >= walk.end) return nullptr;
    const int64_t after = position - p.roots[row];
    if (after >= 0)
      return static_cast<const T*>(p.tree) +
             ((p.lists[p.paths[row] + after] * 2 + part) * p.kv_heads + kv_head) * H;
    const int64_t page = p.lists[p.tables[row] + position / kKeys];
    return static_cast<const T*>(p.pages) + page * p.page_stride + p.layer_offset +
           ((int64_t{kv_head} * 2 + part) * kKeys + position % kKeys) * H;
  }
};

template <class T, int H>
TLT_DEVICE const T* query_of(const AttentionRowsOf& p, const Pair& pair) {
  return static_cast<const T*>(p.qkv) + (pair.row * (p.heads + 2 * p.kv_heads) + pair.head) * H;
}

template <class T, int H>
struct AttentionForward {
  using Parameters = AttentionRowsOf;
  using Shared = AttentionStage<T, H>;
  static constexpr int kThreads = kAttentionWarps * kWarp;

  static int64_t blocks(const Parameters& p) {
    const int64_t rows = p.tile_rows * p.tiles;
    return (p.rows + rows - 1) / rows * p.kv_heads * (p.parts ? p.splits : 1);
  }

  // Of a thread.
  const Block& block;
  const Parameters& p;
  Shared& shared;
  const AttentionWork& work;
  const typename Shared::Multiply& products;

  // 16 keys of the stage, from number `key` on.
  TLT_DEVICE void step(const Walk& walk, int key, Softmax<H>& softmax) const {
    float s[2][4] = {};
    products.scores(block, shared.keys + key * Shared::kRow, s);
    TLT_UNROLL_LOOP
    for (int n = 0; n < 2; ++n)
      for (int i = 0; i < 4; ++i) {
        const Pair& pair = work.pairs[i / 2];
        const int position = walk.first + key + n * 8 + 2 * (block.lane() % 4) + i % 2;
        const bool is_visible = walk.rows.has(pair.row) && position <= pair.last;
        s[n][i] = is_visible ? times(s[n][i], p.scale) : -INFINITY;
      }
    weigh(block, softmax, s);
    products.add_values(block, s, shared.values + key * Shared::kRow, shared.products, softmax.out);
  }

  // The positions of a split that rows of a segment see, as walks: number 0 is the pages before the
  // root's, the same keys for all rows; in a tree each row has one more, from there to its position.
  TLT_DEVICE Walk walk_of(const RowRange& segment, int number, int split) const {
    constexpr int kPositions = static_cast<int>(kSplit);
    const int root_page = static_cast<int>(p.roots[segment.begin] / kKeys * kKeys);
    const int row = segment.begin + number - 1;
    const RowRange rows = number == 0 ? segment : RowRange{row, row + 1};
    const int end = min_of((split + 1) * kPositions, last_of(p, rows) + 1);
    return number == 0 ? Walk{rows, split * kPositions, min_of(end, root_page)}
                       : Walk{rows, max_of(split * kPositions, root_page), end};
  }

  TLT_DEVICE void add_walk(Walk walk, Softmax<H>& softmax) const {
    for (; walk.first < walk.end; walk.first += Shared::kStaged) {
      shared.load(block, CacheEntries<T, H>{p, walk, work.kv_head});
      block.sync();
      for (int key = 0; key < Shared::kStaged && walk.first + key < walk.end; key += kKeys)
        if (walk.rows.meets(work.warp)) step(walk, key, softmax);
      block.sync();
    }
  }

  TLT_DEVICE void add_split_keys(int split, Softmax<H>& softmax) const {
    for (int begin = work.rows.begin; begin < work.rows.end;) {
      const RowRange segment = segment_from(p, begin, work.rows.end);
      const bool is_tree = p.roots[begin] <= last_of(p, segment);
      const int walks = is_tree ? 1 + segment.end - begin : 1;
      for (int number = 0; number < walks; ++number)
        add_walk(walk_of(segment, number, split), softmax);
      begin = segment.end;
    }
    TLT_UNROLL_LOOP
    for (int half = 0; half < 2; ++half) {
      float& sum = softmax.sum[half];
      sum += block.shuffle_xor(sum, 1);
      sum += block.shuffle_xor(sum, 2);
    }
  }

  // A split of a row that has several, for AttentionMerge.
  TLT_DEVICE void store_part(int half, int split, const Softmax<H>& softmax) const {
    const int t = block.lane() % 4;
    float* to = part_of<H>(p, work.pairs[half].row, split, work.pairs[half].head);
    TLT_UNROLL_LOOP
    for (int n = 0; n < H / 8; ++n)
      store_pair(to + n * 8 + 2 * t, softmax.out[n][2 * half], softmax.out[n][2 * half + 1]);
    if (t == 0) to[H] = softmax.top[half], to[H + 1] = softmax.sum[half];
  }

  TLT_DEVICE void store_result(int half, const Softmax<H>& softmax) const {
    const Pair& pair = work.pairs[half];
    const int64_t at = pair.row * p.heads + pair.head;
    const float sum = pair.last < 0 ? 1 : softmax.sum[half];
    T* to = static_cast<T*>(p.out) + at * H + 2 * (block.lane() % 4);
    TLT_UNROLL_LOOP
    for (int n = 0; n < H / 8; ++n)
      store_pair(to + n * 8, softmax.out[n][2 * half] / sum, softmax.out[n][2 * half + 1] / sum);
    if (p.lse && block.lane() % 4 == 0) p.lse[at] = lse_of(softmax.top[half], softmax.sum[half]);
  }

  TLT_DEVICE void store(int split, const Softmax<H>& softmax) const {
    TLT_UNROLL_LOOP
    for (int half = 0; half < 2; ++half) {
      const int64_t splits = splits_for(work.pairs[half].last + 1);
      if (work.pairs[half].last == kNoRow) continue;
      if (!p.parts || splits < 2) {
        if (split == 0) store_result(half, softmax);
      } else if (split < splits) {
        store_part(half, split, softmax);
      }
    }
  }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared& shared) {
    const int rest = block.index() / static_cast<int>(p.kv_heads);
    const int split_blocks = p.parts ? static_cast<int>(p.splits) : 1;
    const int first_split = rest % split_blocks;
    const AttentionWork work = work_of(block, p, rest / split_blocks);
    const int splits = static_cast<int>(splits_for(last_of(p, work.rows) + 1));
    if (first_split > 0 && first_split >= splits) return;
    const typename Shared::Multiply products(block, query_of<T, H>(p, work.pairs[0]),
                                             query_of<T, H>(p, work.pairs[1]));
    const AttentionForward thread{block, p, shared, work, products};
    Softmax<H> total, split;
    total.clear();
    const int end = p.parts ? min_of(first_split + 1, splits) : splits;
    for (int i = first_split; i < end; ++i) {
      split.clear();
      thread.add_split_keys(i, split);
      if (i == first_split)
        total = split;
      else
        add_split(total, split);
    }
    thread.store(first_split, total);
  }
};

// Adds the splits of rows that have several, in order.
template <class T, int H>
struct AttentionMerge {
  using Parameters = AttentionRowsOf;
  using Shared = NoShared;
  static constexpr int kThreads = kAttentionWarps * kWarp;

  static int64_t blocks(const Parameters& p) { return p.parts && p.splits > 1 ? p.rows : 0; }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const int64_t row = block.index(), splits = splits_for(p.positions[row] + 1);
    if (splits < 2) return;
    for (int64_t i = block.thread(); i < p.heads * H; i += kThreads) {
      const int64_t head = i / H, column = i % H;
      const float* part = part_of<H>(p, row, 0, head);
      float out = part[column], top = part[H], sum = part[H + 1];
      for (int64_t split = 1; split < splits; ++split) {
        part = part_of<H>(p, row, split, head);
        const Shrink shrink = shrink_to(top, part[H]);
        top = shrink.top;
        sum = add_split(sum, part[H + 1], shrink);
        out = add_split(out, part[column], shrink);
      }
      set(static_cast<T*>(p.out)[row * p.heads * H + i], out / sum);
      if (p.lse && column == 0) p.lse[row * p.heads + head] = lse_of(top, sum);
    }
  }
};

}  // namespace tlt::ops::cuda

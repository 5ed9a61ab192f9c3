// The gradient of attention in training: d_q by a walk of each query over its keys, d_k and d_v by
// a walk of each key over the queries that see it. Nothing is as large as all pairs of the two.
//
// Both use the multiplications of the forward pass (attention_warp.h). Sums have a fixed order from
// a segment's first row on, so they do not depend on other segments of the batch. The keys of a
// shared prefix add the queries of their own segment, then those of each suffix.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/attention.h"

namespace tlt::ops::cuda {

// deltas[row, head] = the sum of d_out out.
template <class T, int H>
struct AttentionDeltas {
  using Parameters = AttentionGradientOf;
  using Shared = NoShared;
  static constexpr int kThreads = kAttentionWarps * kWarp;
  static int64_t blocks(const Parameters& p) { return p.rows.rows; }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    for (int64_t head = block.warp(); head < p.rows.heads; head += kAttentionWarps) {
      const int64_t at = block.index() * p.rows.heads + head;
      const T *d = static_cast<const T*>(p.d_out) + at * H,
              *out = static_cast<const T*>(p.rows.out) + at * H;
      float sum = 0;
      for (int i = block.lane(); i < H; i += kWarp)
        sum = fmaf(to_float(d[i]), to_float(out[i]), sum);
      for (int mask = 1; mask < kWarp; mask *= 2) sum += block.shuffle_xor(sum, mask);
      if (block.lane() == 0) p.deltas[at] = sum;
    }
  }
};

// What the gradient needs of a (row, head) pair.
struct PairSums {
  float lse;    // as a power of 2
  float delta;  // AttentionDeltas
};
TLT_DEVICE PairSums pair_sums(const AttentionGradientOf& p, int64_t row, int64_t head) {
  const int64_t at = row * p.rows.heads + head;
  return {times(p.rows.lse[at], kLog2OfE), p.deltas[at]};
}

// The weight of a score, and the gradient of the product of query and key before scaling.
struct ScoreGradient {
  float weight, d_score;
};
TLT_DEVICE ScoreGradient score_gradient(const AttentionGradientOf& p, float score, float d_weight,
                                        const PairSums& sums) {
  const float weight = exp2f(times(score, p.rows.scale) - sums.lse);
  return {weight, times(times(weight, d_weight - sums.delta), times(p.rows.scale, kLogOf2))};
}

// Half of the rows of a fragment, to a row of float32.
template <int H>
TLT_DEVICE void store_half(const Block& block, const float (&sums)[H / 8][4], int half, float* to) {
  TLT_UNROLL_LOOP
  for (int n = 0; n < H / 8; ++n)
    store_pair(to + n * 8 + 2 * (block.lane() % 4), sums[n][2 * half], sums[n][2 * half + 1]);
}

template <class T, int H>
struct AttentionQueryGradient {
  using Parameters = AttentionGradientOf;
  using Shared = AttentionStage<T, H>;
  using Multiply = typename Shared::Multiply;
  static constexpr int kThreads = kAttentionWarps * kWarp;
  static int64_t blocks(const Parameters& p) { return AttentionForward<T, H>::blocks(p.rows); }

  // Of a thread.
  const Block& block;
  const Parameters& p;
  Shared& shared;
  const AttentionWork& work;
  const Multiply &q, &d_out;
  const PairSums* sums;  // of its two pairs

  static TLT_DEVICE const T* d_out_of(const Parameters& p, const Pair& pair) {
    return static_cast<const T*>(p.d_out) + (pair.row * p.rows.heads + pair.head) * H;
  }

  TLT_DEVICE void step(const Walk& walk, int key, float (&d_q)[H / 8][4]) const {
    const T *keys = shared.keys + key * Shared::kRow, *values = shared.values + key * Shared::kRow;
    float s[2][4] = {}, d[2][4] = {};
    q.scores(block, keys, s);
    d_out.scores(block, values, d);
    TLT_UNROLL_LOOP
    for (int n = 0; n < 2; ++n)
      for (int i = 0; i < 4; ++i) {
        const Pair& pair = work.pairs[i / 2];
        const int position = walk.first + key + n * 8 + 2 * (block.lane() % 4) + i % 2;
        const bool is_visible = walk.rows.has(pair.row) && position <= pair.last;
        const ScoreGradient g = score_gradient(p, s[n][i], d[n][i], sums[i / 2]);
        s[n][i] = is_visible ? g.d_score : 0;
      }
    q.add_values(block, s, keys, shared.products, d_q);
  }

  TLT_DEVICE void add_segment(const RowRange& segment, float (&d_q)[H / 8][4]) const {
    Walk walk{segment, 0, last_of(p.rows, segment) + 1};
    for (; walk.first < walk.end; walk.first += Shared::kStaged) {
      shared.load(block, CacheEntries<T, H>{p.rows, walk, work.kv_head});
      block.sync();
      for (int key = 0; key < Shared::kStaged && walk.first + key < walk.end; key += kKeys)
        if (segment.meets(work.warp)) step(walk, key, d_q);
      block.sync();
    }
  }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared& shared) {
    const AttentionWork work =
        work_of(block, p.rows, block.index() / static_cast<int>(p.rows.kv_heads));
    const Pair *first = &work.pairs[0], *second = &work.pairs[1];
    const Multiply q(block, query_of<T, H>(p.rows, *first), query_of<T, H>(p.rows, *second)),
        d_out(block, d_out_of(p, *first), d_out_of(p, *second));
    const PairSums sums[2] = {pair_sums(p, first->row, first->head),
                              pair_sums(p, second->row, second->head)};
    const AttentionQueryGradient thread{block, p, shared, work, q, d_out, sums};
    float d_q[H / 8][4] = {};
    for (int begin = work.rows.begin; begin < work.rows.end;) {
      const RowRange segment = segment_from(p.rows, begin, work.rows.end);
      thread.add_segment(segment, d_q);
      begin = segment.end;
    }
    TLT_UNROLL_LOOP
    for (int half = 0; half < 2; ++half) {
      const Pair& pair = work.pairs[half];
      if (pair.last != kNoRow)
        store_half<H>(block, d_q, half, p.d_q + (pair.row * p.rows.heads + pair.head) * H);
    }
  }
};

// Queries of rows [first, end) and their gradients of a KV head's group, as pairs in order of row
// and head.
template <class T, int H>
struct GroupQueries {
  const AttentionGradientOf& p;
  int first, end, group, kv_head;
  int first_pair = 0;  // of a stage

  TLT_DEVICE int pairs() const { return (end - first) * group; }
  TLT_DEVICE int row(int pair) const { return first + pair / group; }
  TLT_DEVICE int head(int pair) const { return kv_head * group + pair % group; }
  // Of a stage: the query (part 0) or the gradient of its output (part 1).
  TLT_DEVICE const T* operator()(int number, int part) const {
    const int pair = first_pair + number;
    if (pair >= pairs()) return nullptr;
    const Pair at = {row(pair), head(pair), 0};
    return part ? static_cast<const T*>(p.d_out) + (at.row * p.rows.heads + at.head) * H
                : query_of<T, H>(p.rows, at);
  }
};

// A warp has 16 keys, its block kKeyRows of one segment. kValues: d_v, else d_k: the registers do
// not suffice for both.
template <class T, int H, bool kValues>
struct AttentionKeyGradient {
  using Parameters = AttentionGradientOf;
  using Shared = AttentionStage<T, H>;  // of queries and the gradients of their outputs
  using Multiply = typename Shared::Multiply;
  using Queries = GroupQueries<T, H>;
  static constexpr int kThreads = kAttentionWarps * kWarp;
  static_assert(kAttentionWarps * kKeys == kKeyRows);
  static int64_t blocks(const Parameters& p) { return p.key_tiles * p.rows.kv_heads; }

  // The rows of the lane's two keys; -1: none.
  struct Keys {
    int rows[2];
    int kv_head, first;  // first: row of the block
  };

  static TLT_DEVICE Keys keys_of(const Block& block, const Parameters& p) {
    Keys keys;
    keys.kv_head = block.index() % static_cast<int>(p.rows.kv_heads);
    keys.first = static_cast<int>(p.tiles[block.index() / static_cast<int>(p.rows.kv_heads)]);
    TLT_UNROLL_LOOP
    for (int half = 0; half < 2; ++half) {
      const int row = keys.first + block.warp() * kKeys + block.lane() / 4 + half * 8;
      keys.rows[half] = row < static_cast<int>(p.ends[keys.first]) ? row : -1;
    }
    return keys;
  }

  // The key (part 0) or value (part 1) of a half.
  static TLT_DEVICE const T* own(const Parameters& p, const Keys& keys, int half, int part) {
    const int64_t head = p.rows.heads + part * p.rows.kv_heads + keys.kv_head;
    const Pair at = {keys.rows[half] < 0 ? keys.first : keys.rows[half], static_cast<int>(head), 0};
    return query_of<T, H>(p.rows, at);
  }

  // Of a thread.
  const Block& block;
  const Parameters& p;
  Shared& shared;
  const Keys& keys;
  const Multiply &key, &value;

  // 16 pairs of the stage, from number `at` on.
  TLT_DEVICE void step(const Queries& queries, int at, float (&sums)[H / 8][4]) const {
    const T *q = shared.keys + at * Shared::kRow, *d_out = shared.values + at * Shared::kRow;
    float s[2][4] = {}, d[2][4] = {};
    key.scores(block, q, s);
    if (!kValues) value.scores(block, d_out, d);
    TLT_UNROLL_LOOP
    for (int n = 0; n < 2; ++n)
      for (int i = 0; i < 4; ++i) {
        const int pair = queries.first_pair + at + n * 8 + 2 * (block.lane() % 4) + i % 2;
        const int row = queries.row(pair), key_row = keys.rows[i / 2];
        // Rows of a suffix come after those of its prefix, so this holds for them too.
        if (row >= queries.end || key_row < 0 || key_row > row) {
          s[n][i] = 0;
          continue;
        }
        const PairSums of_pair = pair_sums(p, row, queries.head(pair));
        const ScoreGradient g = score_gradient(p, s[n][i], d[n][i], of_pair);
        s[n][i] = kValues ? g.weight : g.d_score;
      }
    key.add_values(block, s, kValues ? d_out : q, shared.products, sums);
  }

  TLT_DEVICE void add_queries(Queries queries, float (&sums)[H / 8][4]) const {
    constexpr int kStage = Shared::kStaged;
    for (; queries.first_pair < queries.pairs(); queries.first_pair += kStage) {
      shared.load(block, queries);
      block.sync();
      for (int at = 0; at < kStage && queries.first_pair + at < queries.pairs(); at += kKeys)
        step(queries, at, sums);
      block.sync();
    }
  }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared& shared) {
    const Keys keys = keys_of(block, p);
    const Multiply key(block, own(p, keys, 0, 0), own(p, keys, 1, 0)),
        value(block, own(p, keys, 0, 1), own(p, keys, 1, 1));
    const AttentionKeyGradient thread{block, p, shared, keys, key, value};
    float sums[H / 8][4] = {};
    const int last = static_cast<int>(p.seen_until[keys.first]),
              group = static_cast<int>(p.rows.heads / p.rows.kv_heads);
    for (int begin = keys.first; begin < last;) {
      const int end = static_cast<int>(p.ends[begin]);
      thread.add_queries({p, begin, end, group, keys.kv_head}, sums);
      begin = end;
    }
    float* to = kValues ? p.d_v : p.d_k;
    TLT_UNROLL_LOOP
    for (int half = 0; half < 2; ++half)
      if (keys.rows[half] >= 0)
        store_half<H>(block, sums, half,
                      to + (keys.rows[half] * p.rows.kv_heads + keys.kv_head) * H);
  }
};

}  // namespace tlt::ops::cuda

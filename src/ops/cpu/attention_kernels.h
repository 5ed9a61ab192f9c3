// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/simd.h"

namespace tlt::ops::TLT_ISA {

constexpr int64_t kMaxHeadVectors = 16;  // head size up to 256 (ops/attention.cpp checks it)

// The keys of a page: [H / u, 16, u]; its values follow: [16, H].
template <class T>
TLT_INLINE T* page_keys(const KvPages& cache, int32_t page, int64_t head) {
  return static_cast<T*>(cache.data) + page * cache.page_stride + cache.layer_offset +
         head * cache.head_stride;
}

template <class T>
TLT_INLINE int64_t key_index(int64_t element, int64_t slot) {
  constexpr int kElements = Unit<T>::kElements;
  return (element / kElements) * kLanes * kElements + slot * kElements + element % kElements;
}

// One head's slot of a position.
struct HeadSlot {
  const int32_t* pages;
  int64_t position, head;
};

template <class T>
TLT_INLINE void store_slot(const KvPages& cache, const HeadSlot& at, int64_t head_size,
                           const T* key, const T* value) {
  const int64_t slot = at.position % kLanes;
  T* keys = page_keys<T>(cache, at.pages[at.position / kLanes], at.head);
  for (int64_t i = 0; i < head_size; i += Unit<T>::kElements)
    std::memcpy(keys + key_index<T>(i, slot), key + i, Unit<T>::kElements * sizeof(T));
  std::memcpy(keys + (kLanes + slot) * head_size, value,
              static_cast<size_t>(head_size) * sizeof(T));
}

template <class T>
void store_rows_of(const KvRows& rows, const KvPages& cache) {
  for (int64_t row = 0; row < rows.rows; ++row)
    for (int64_t n = 0; n < rows.kv_heads; ++n) {
      const T* key = static_cast<const T*>(rows.data) + row * rows.stride + n * rows.head_size;
      store_slot(cache, {rows.pages, rows.positions[row], n}, rows.head_size, key,
                 key + rows.kv_heads * rows.head_size);
    }
}

static void store_rows(Type type, const KvRows& rows, const KvPages& cache) {
  type == Type::kBf16 ? store_rows_of<Bf16>(rows, cache) : store_rows_of<float>(rows, cache);
}

// --- rotation ---

// Rotates one head of one row in place: pairs (i, i + H / 2). `sign` -1 reverses the rotation.
template <class T>
TLT_INLINE void rotate(T* x, const float* cos_sin, int64_t head_size, float sign) {
  const int64_t half = head_size / 2;
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const f32x16 cos = load(cos_sin + i), sin = load(cos_sin + half + i) * sign;
    const f32x16 a = load(x + i), b = load(x + half + i);
    store(x + i, fma(-b, sin, a * cos));
    store(x + half + i, fma(a, sin, b * cos));
  }
  for (; i < half; ++i) {
    const float cos = cos_sin[i], sin = cos_sin[half + i] * sign;
    const float a = to_float(x[i]), b = to_float(x[half + i]);
    x[i] = from_float<T>(__builtin_fmaf(-b, sin, a * cos));
    x[half + i] = from_float<T>(__builtin_fmaf(a, sin, b * cos));
  }
}

template <class T>
void rope_rows(const RopeTask& task, const KvPages& cache) {
  const int64_t h = task.head_size, width = (task.heads + 2 * task.kv_heads) * h;
  const int64_t group = task.heads / task.kv_heads, values = task.kv_heads * h;
  float head[kMaxHeadVectors * kLanes];
  for (int64_t row = 0; row < task.rows; ++row) {
    T* q = static_cast<T*>(task.qkv) + row * width;
    const float* angles = task.cos_sin + task.positions[row] * h;
    const auto turn = [&](T* x, const float* norm) {
      // Normalised and rotated in float32, rounded once.
      for (int64_t i = 0; i < h; i += kLanes) store(head + i, load(x + i));
      if (norm) rms_norm_rows<float>({head, norm, task.norm_epsilon, 1, h, head});
      rotate(head, angles, h, 1.0f);
      for (int64_t i = 0; i < h; i += kLanes) store(x + i, load(head + i));
    };
    for (int64_t n = task.first_kv_head; n < task.end_kv_head; ++n) {
      for (int64_t g = 0; g < group; ++g) turn(q + (n * group + g) * h, task.q_norm);
      T* key = q + (task.heads + n) * h;
      turn(key, task.k_norm);
      if (!task.tree) {
        store_slot(cache, {task.pages, task.positions[row], n}, h, key, key + values);
        continue;
      }
      T* to = static_cast<T*>(task.tree) + row * 2 * values + n * h;
      std::memcpy(to, key, static_cast<size_t>(h) * sizeof(T));
      std::memcpy(to + values, key + values, static_cast<size_t>(h) * sizeof(T));
    }
  }
}

static void rope_and_store(Type type, const RopeTask& task, const KvPages& cache) {
  type == Type::kBf16 ? rope_rows<Bf16>(task, cache) : rope_rows<float>(task, cache);
}

// --- forward ---

// One query and its keys. The running maximum, sum and weighted values are float32; the weights of
// the values are rounded to the type of the values. Scores are scaled to powers of 2.
template <class T, int kVectors>
struct Query {
  const T* q;
  int64_t keys;  // positions 0 .. keys - 1 are visible
  float top;
  f32x16 sum;
  f32x16 value[kVectors];
};

// The running maximum is updated only when scores exceed it by more than this: weights up to 2^12
// lose nothing in floating point, and the sums are rarely rescaled.
constexpr float kSlack = 12;
constexpr float kLog2OfE = 1.44269504088896341f, kLogOf2 = 0.693147180559945309f;

// Adds the scores of a page to the running maximum. Returns them, with -infinity for keys that are
// not visible: their weight is exactly 0, since a query sees a key of its first page.
template <class T, int kVectors>
TLT_INLINE f32x16 add_scores(Query<T, kVectors>& query, f32x16 scores, int64_t visible,
                             float scale) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  scores = scores * scale;
  if (visible < kLanes)
    scores = first_lanes(scores, visible < 0 ? 0 : static_cast<int>(visible), kNothing);
  if (!any_above(scores, query.top + kSlack)) return scores;
  const float top = max_lanes(scores);
  const f32x16 shrink = exp2<float>(splat(query.top - top));
  query.sum *= shrink;
  TLT_UNROLL
  for (int i = 0; i < kVectors; ++i) query.value[i] *= shrink;
  query.top = top;
  return scores;
}

// Partial sums of a score: a single sum would wait for each product before the next.
#if defined(__AVX512F__)
constexpr int kChains = 4;
#else
constexpr int kChains = 1;
#endif

TLT_INLINE f32x16 add_chains(const f32x16 (&sums)[kChains]) {
#if defined(__AVX512F__)
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
#else
  return sums[0];
#endif
}

// Queries whose values fit the registers together …
template <int kVectors>
constexpr int kQueries = kVectors <= 6   ? 4
                         : kVectors <= 8 ? 2
                                         : 1;
// … and queries that fit the fastest cache next to a page.
template <int kVectors>
constexpr int kTogether = kVectors <= 8 ? 32 : 16;

// The keys of one KV head at positions first .. end; `first` is the start of a page.
struct KeyRange {
  const int32_t* pages;
  int64_t kv_head, first, end;
  float scale;
  HeadPages next;  // read after them
};

// Pages are anywhere in memory and too short for the hardware prefetcher, so a page some way ahead
// is prefetched during the computation of the current one.
constexpr int64_t kPagesAhead = 8;

// The page to prefetch during the one at `first`; that page itself if none follows.
template <class T>
TLT_INLINE const T* page_ahead(const KeyRange& range, int64_t first, const KvPages& cache) {
  const int64_t page = first / kLanes, ahead = page + kPagesAhead;
  const int64_t pages = (range.end + kLanes - 1) / kLanes;
  if (ahead < pages) return page_keys<T>(cache, range.pages[ahead], range.kv_head);
  if (ahead - pages < range.next.count)
    return page_keys<T>(cache, range.next.pages[ahead - pages], range.next.kv_head);
  return page_keys<T>(cache, range.pages[page], range.kv_head);
}

TLT_INLINE void prefetch(const void* line) { __builtin_prefetch(line, /*rw=*/0, /*locality=*/2); }

// One page and some queries of its KV head, as many as fit the registers. The result of a query
// does not depend on the other queries: the weight of keys it does not see is exactly 0. With each
// line of the page, the line `ahead` elements after it is prefetched: all at once would stall.
template <class T, int kVectors, int kCount>
TLT_INLINE void attend_page(Query<T, kVectors>* queries, const T* keys, int64_t first, float scale,
                            int64_t ahead) {
  constexpr int64_t kHead = kVectors * kLanes;
  constexpr int kElements = Unit<T>::kElements;
  const T* values = keys + kLanes * kHead;
  f32x16 scores[kCount][kChains] = {};
  for (int64_t k = 0; k < kHead / kElements; k += kChains) {
    TLT_UNROLL
    for (int c = 0; c < kChains; ++c) {
      const T* at = keys + (k + c) * kLanes * kElements;
      const auto column = load_units(at);
      prefetch(at + ahead);
      TLT_UNROLL
      for (int i = 0; i < kCount; ++i)
        scores[i][c] = dot(scores[i][c], splat_unit(queries[i].q + (k + c) * kElements), column);
    }
  }
  TLT_UNROLL
  for (int i = 0; i < kCount; ++i)
    scores[i][0] =
        add_scores<T, kVectors>(queries[i], add_chains(scores[i]), queries[i].keys - first, scale);
  T weights[kCount][kLanes];
  TLT_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const f32x16 p = exp2<T>(scores[i][0] - queries[i].top);
    queries[i].sum += p;
    store(weights[i], p);
  }
  f32x16 sums[kCount][kVectors];
  TLT_UNROLL
  for (int i = 0; i < kCount; ++i) TLT_UNROLL
  for (int v = 0; v < kVectors; ++v) sums[i][v] = queries[i].value[v];
  for (int slot = 0; slot < kLanes; slot += kElements) {
    TLT_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const auto value = load_units(values + slot * kHead + v * kLanes, kHead);
      prefetch(values + ahead + slot * kHead + v * kLanes * kElements);
      TLT_UNROLL
      for (int i = 0; i < kCount; ++i)
        sums[i][v] = dot(sums[i][v], splat_unit(weights[i] + slot), value);
    }
  }
  TLT_UNROLL
  for (int i = 0; i < kCount; ++i) TLT_UNROLL
  for (int v = 0; v < kVectors; ++v) queries[i].value[v] = sums[i][v];
}

// `groups` times kQueries, and kRest more, walk over the pages together, so these are read from
// memory once. The result of a query does not depend on where its walk was interrupted.
template <class T, int kVectors, int kRest>
void attend_groups(Query<T, kVectors>* queries, int groups, const KeyRange& range,
                   const KvPages& cache) {
  constexpr int kMost = kQueries<kVectors>;
  for (int64_t first = range.first; first < range.end; first += kLanes) {
    const T* keys = page_keys<T>(cache, range.pages[first / kLanes], range.kv_head);
    const int64_t ahead = page_ahead<T>(range, first, cache) - keys;
    attend_page<T, kVectors, kMost>(queries, keys, first, range.scale, ahead);
    for (int group = 1; group < groups; ++group)
      attend_page<T, kVectors, kMost>(queries + group * kMost, keys, first, range.scale, 0);
    if constexpr (kRest > 0)
      attend_page<T, kVectors, kRest>(queries + groups * kMost, keys, first, range.scale, 0);
  }
}

// Fewer than kQueries, as for a decode row, where a loop over groups would cost 2 to 10 %.
template <class T, int kVectors, int kCount>
void attend_few(Query<T, kVectors>* queries, const KeyRange& range, const KvPages& cache) {
  for (int64_t first = range.first; first < range.end; first += kLanes) {
    const T* keys = page_keys<T>(cache, range.pages[first / kLanes], range.kv_head);
    attend_page<T, kVectors, kCount>(queries, keys, first, range.scale,
                                     page_ahead<T>(range, first, cache) - keys);
  }
}

template <class T, int kVectors, int kRest>
void attend_groups_and_rest(Query<T, kVectors>* queries, int groups, const KeyRange& range,
                            const KvPages& cache) {
  if (groups > 0)
    attend_groups<T, kVectors, kRest>(queries, groups, range, cache);
  else if constexpr (kRest > 0)
    attend_few<T, kVectors, kRest>(queries, range, cache);
}

template <class T, int kVectors>
void attend_some(Query<T, kVectors>* queries, int count, const KeyRange& range,
                 const KvPages& cache) {
  constexpr int kMost = kQueries<kVectors>;
  const int groups = count / kMost, rest = count % kMost;
  if constexpr (kMost >= 4) {
    if (rest == 3) return attend_groups_and_rest<T, kVectors, 3>(queries, groups, range, cache);
    if (rest == 2) return attend_groups_and_rest<T, kVectors, 2>(queries, groups, range, cache);
  }
  if constexpr (kMost >= 2)
    if (rest == 1) return attend_groups_and_rest<T, kVectors, 1>(queries, groups, range, cache);
  attend_groups_and_rest<T, kVectors, 0>(queries, groups, range, cache);
}

// The queries of a task's KV head by index: row by row, those of a group next to each other.
template <class T, int kVectors>
struct TaskQueries {
  static constexpr int64_t kHead = kVectors * kLanes;
  const AttentionTask& task;
  const int64_t group = task.heads / task.kv_heads;
  const int64_t width = (task.heads + 2 * task.kv_heads) * kHead;

  int64_t count() const { return task.rows * group; }
  int64_t row(int64_t index) const { return index / group; }
  int64_t position(int64_t index) const {
    return task.tree ? task.tree_positions[row(index)] : task.first_position + row(index);
  }
  KeyRange range(int64_t first, int64_t end) const {
    return {task.pages, task.kv_head, first, end, kLog2OfE / std::sqrt(static_cast<float>(kHead)),
            task.next};
  }
  void begin(int64_t index, Query<T, kVectors>& query) const {
    const int64_t head = task.kv_head * group + index % group;
    query.q = static_cast<const T*>(task.qkv) + row(index) * width + head * kHead;
    query.keys = position(index) + 1;
    query.top = -std::numeric_limits<float>::infinity();
    query.sum = f32x16{};
    for (auto& value : query.value) value = f32x16{};
  }
  void end(int64_t index, const Query<T, kVectors>& query) const {
    const int64_t where = row(index) * task.heads + task.kv_head * group + index % group;
    const float sum = sum_lanes(query.sum);
    T* out = static_cast<T*>(task.out) + where * kHead;
    TLT_UNROLL
    for (int v = 0; v < kVectors; ++v) store(out + v * kLanes, query.value[v] / sum);
    if (task.lse) task.lse[where] = query.top * kLogOf2 + std::log(sum);
  }
};

template <class T, int kVectors>
void attend_rows(const TaskQueries<T, kVectors>& its, const KvPages& cache) {
  Query<T, kVectors> queries[kTogether<kVectors>];
  for (int64_t first = 0; first < its.count(); first += kTogether<kVectors>) {
    const int64_t left = its.count() - first;
    const int count = static_cast<int>(left < kTogether<kVectors> ? left : kTogether<kVectors>);
    for (int i = 0; i < count; ++i) its.begin(first + i, queries[i]);
    // Positions are non-decreasing over the rows.
    attend_some<T, kVectors>(queries, count, its.range(0, queries[count - 1].keys), cache);
    for (int i = 0; i < count; ++i) its.end(first + i, queries[i]);
  }
}

// A tree: the pages before the root are the same for all rows, so kTogether queries share the walk
// over them. After that, a row's key is stored in its slot before the row is computed; rows of a
// path are computed together, since none sees what the next one stores.
template <class T, int kVectors>
void attend_tree(const TaskQueries<T, kVectors>& its, const KvPages& cache) {
  constexpr int64_t kHead = kVectors * kLanes;
  const AttentionTask& task = its.task;
  const int64_t own = task.tree_positions[0] / kLanes * kLanes;
  Query<T, kVectors> queries[kTogether<kVectors>];
  for (int64_t first = 0; first < its.count(); first += kTogether<kVectors>) {
    const int64_t left = its.count() - first;
    const int count = static_cast<int>(left < kTogether<kVectors> ? left : kTogether<kVectors>);
    for (int i = 0; i < count; ++i) its.begin(first + i, queries[i]);
    attend_some<T, kVectors>(queries, count, its.range(0, own), cache);
    int waiting = 0;  // index of the first query that is stored but not computed
    const auto flush = [&](int end) {
      if (end > waiting)
        attend_some<T, kVectors>(queries + waiting, end - waiting,
                                 its.range(own, queries[end - 1].keys), cache);
      waiting = end;
    };
    for (int i = 0; i < count; ++i) {
      if ((first + i) % its.group != 0) continue;  // the row is in its slot already
      if (i > 0 && queries[i].keys <= queries[i - 1].keys) flush(i);
      const T* key = static_cast<const T*>(task.tree) +
                     (its.row(first + i) * 2 * task.kv_heads + task.kv_head) * kHead;
      store_slot(cache, {task.pages, queries[i].keys - 1, task.kv_head}, kHead, key,
                 key + task.kv_heads * kHead);
    }
    flush(count);
    for (int i = 0; i < count; ++i) its.end(first + i, queries[i]);
  }
}

template <class T, int kVectors>
void attend(const AttentionTask& task, const KvPages& cache) {
  const TaskQueries<T, kVectors> its{task};
  task.tree ? attend_tree(its, cache) : attend_rows(its, cache);
}

template <class T>
void attend_any(const AttentionTask& task, const KvPages& cache) {
  switch (task.head_size / kLanes) {
    case 1:
      return attend<T, 1>(task, cache);
    case 2:
      return attend<T, 2>(task, cache);
    case 3:
      return attend<T, 3>(task, cache);
    case 4:
      return attend<T, 4>(task, cache);
    case 5:
      return attend<T, 5>(task, cache);
    case 6:
      return attend<T, 6>(task, cache);
    case 8:
      return attend<T, 8>(task, cache);
    case 16:
      return attend<T, 16>(task, cache);
    default:
      __builtin_trap();  // ops/attention.cpp checks the head size
  }
}

static void attention(Type type, const AttentionTask& task, const KvPages& cache) {
  type == Type::kBf16 ? attend_any<Bf16>(task, cache) : attend_any<float>(task, cache);
}

// --- backward ---
// One task is one KV head of one sequence of n positions, which may begin with a prefix that it
// shares with other sequences. The gradients of its keys are summed by one thread in order of the
// queries; the task of the prefix adds the contributions of its suffixes. KV entries are first
// widened to float32 in both layouts: columns [page, H, 16] for sixteen scores at once, rows [n, H]
// for sums over keys.

// Queries whose gradients are computed together: their keys are read, and dk and dv updated, once
// for all of them.
constexpr int kBackwardQueries = 8;

static int64_t attention_backward_scratch(const AttentionTask& task) {
  const int64_t padded = (task.first_position + task.rows + kLanes - 1) / kLanes * kLanes;
  return (padded * 5 + 2 * kBackwardQueries) * task.head_size;
}

struct BackwardScratch {
  float *key_columns, *value_columns;  // [pages, H, 16]
  float* key_rows;                     // [n, H]
  float *d_key, *d_value;              // [n, H]
  float *q, *d_out;                    // [kBackwardQueries, H]

  BackwardScratch(float* memory, int64_t padded, int64_t h)
      : key_columns(memory),
        value_columns(memory + padded * h),
        key_rows(memory + 2 * padded * h),
        d_key(memory + 3 * padded * h),
        d_value(memory + 4 * padded * h),
        q(memory + 5 * padded * h),
        d_out(q + kBackwardQueries * h) {}
};

template <class T>
void widen_pages(const AttentionTask& task, const KvPages& cache, const BackwardScratch& s) {
  const int64_t h = task.head_size, end = task.first_position + task.rows;
  for (int64_t position = 0; position < end; ++position) {
    const int64_t page = position / kLanes, slot = position % kLanes;
    const T* keys = page_keys<T>(cache, task.pages[page], task.kv_head);
    const T* value = keys + kLanes * h + slot * h;
    for (int64_t i = 0; i < h; ++i) {
      const float key = to_float(keys[key_index<T>(i, slot)]);
      s.key_rows[position * h + i] = key;
      s.key_columns[(page * h + i) * kLanes + slot] = key;
      s.value_columns[(page * h + i) * kLanes + slot] = to_float(value[i]);
    }
  }
  for (int64_t position = end; position % kLanes != 0; ++position)
    for (int64_t i = 0; i < h; ++i) {
      const int64_t at = (position / kLanes * h + i) * kLanes + position % kLanes;
      s.key_columns[at] = s.value_columns[at] = 0;
    }
}

// Elements before a head of a row of qkv.
TLT_INLINE int64_t qkv_offset(const AttentionTask& task, int64_t row, int64_t head) {
  return (row * (task.heads + 2 * task.kv_heads) + head) * task.head_size;
}

template <int kVectors>
struct BackwardQuery {
  int64_t row, head;
  int64_t keys;  // positions 0 .. keys - 1 are visible
  float lse, delta;
  f32x16 q[kVectors], d_out[kVectors], d_q[kVectors];
};

template <class T, int kVectors>
TLT_INLINE void load_query(const AttentionTask& task, const BackwardScratch& s, int index,
                           BackwardQuery<kVectors>& query) {
  constexpr int64_t kHead = kVectors * kLanes;
  const int64_t at = query.row * task.heads + query.head;
  const T* q = static_cast<const T*>(task.qkv) + qkv_offset(task, query.row, query.head);
  const T* out = static_cast<const T*>(task.out) + at * kHead;
  const T* d_out = static_cast<const T*>(task.d_out) + at * kHead;
  f32x16 inner = {};
  TLT_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    query.q[v] = load(q + v * kLanes);
    query.d_out[v] = load(d_out + v * kLanes);
    query.d_q[v] = f32x16{};
    inner = fma(query.d_out[v], load(out + v * kLanes), inner);
    store(s.q + index * kHead + v * kLanes, query.q[v]);
    store(s.d_out + index * kHead + v * kLanes, query.d_out[v]);
  }
  query.keys = task.first_position + query.row + 1;
  query.lse = task.lse[at];
  query.delta = sum_lanes(inner);
}

// Gradient through softmax(q k) v for some queries: dq, and their contributions to dk and dv, key
// by key in order of the queries.
template <int kVectors>
void queries_backward(const BackwardScratch& s, BackwardQuery<kVectors>* queries, int count) {
  constexpr int64_t kHead = kVectors * kLanes;
  const float scale = 1.0f / std::sqrt(static_cast<float>(kHead));
  int64_t longest = 0;
  for (int i = 0; i < count; ++i) longest = queries[i].keys > longest ? queries[i].keys : longest;
  for (int64_t first = 0; first < longest; first += kLanes) {
    const float* keys = s.key_columns + first * kHead;
    const float* values = s.value_columns + first * kHead;
    f32x16 scores[kBackwardQueries] = {}, d_p[kBackwardQueries] = {};
    for (int64_t i = 0; i < kHead; ++i) {
      const f32x16 key = load(keys + i * kLanes), value = load(values + i * kLanes);
      TLT_UNROLL
      for (int n = 0; n < kBackwardQueries; ++n) {
        scores[n] = fma(splat(s.q[n * kHead + i]), key, scores[n]);
        d_p[n] = fma(splat(s.d_out[n * kHead + i]), value, d_p[n]);
      }
    }
    float p[kBackwardQueries][kLanes], d_score[kBackwardQueries][kLanes];
    for (int n = 0; n < kBackwardQueries; ++n) {
      const int64_t visible = n < count ? queries[n].keys - first : 0;
      const int lanes = static_cast<int>(visible < 0 ? 0 : visible < kLanes ? visible : kLanes);
      const f32x16 weight =
          lanes == 0 ? f32x16{} : first_lanes(exp(scores[n] * scale - queries[n].lse), lanes, 0);
      store(p[n], weight);
      store(d_score[n], lanes == 0 ? f32x16{} : weight * (d_p[n] - queries[n].delta) * scale);
    }
    const int64_t left = longest - first;
    for (int64_t slot = 0; slot < (left < kLanes ? left : kLanes); ++slot) {
      TLT_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const int64_t at = (first + slot) * kHead + v * kLanes;
        const f32x16 key = load(s.key_rows + at);
        f32x16 d_key = load(s.d_key + at), d_value = load(s.d_value + at);
        TLT_UNROLL
        for (int n = 0; n < kBackwardQueries; ++n) {
          d_value = fma(splat(p[n][slot]), queries[n].d_out[v], d_value);
          d_key = fma(splat(d_score[n][slot]), queries[n].q[v], d_key);
          queries[n].d_q[v] = fma(splat(d_score[n][slot]), key, queries[n].d_q[v]);
        }
        store(s.d_key + at, d_key);
        store(s.d_value + at, d_value);
      }
    }
  }
}

// The norm of queries or keys, null for none, and its gradient.
struct HeadNorm {
  const float* weight;
  float* d_weight;
};

// Backward through rotation and norm, from `d` [H] float32 to the projection's gradient.
template <class T>
void head_backward(const AttentionTask& task, float* d, int64_t row, int64_t head,
                   const HeadNorm& norm) {
  const int64_t h = task.head_size, offset = qkv_offset(task, row, head);
  const T* raw = static_cast<const T*>(task.raw_qkv) + offset;
  T* out = static_cast<T*>(task.d_qkv) + offset;
  rotate(d, task.cos_sin + (task.first_position + row) * h, h, -1.0f);
  if (!norm.weight) {
    for (int64_t i = 0; i < h; ++i) out[i] = from_float<T>(d[i]);
    return;
  }
  float x[kMaxHeadVectors * kLanes] = {}, dx[kMaxHeadVectors * kLanes] = {};
  for (int64_t i = 0; i < h; ++i) x[i] = to_float(raw[i]);
  rms_norm_backward_rows<float>({d, x, norm.weight, task.norm_epsilon, 1, h, dx, norm.d_weight});
  for (int64_t i = 0; i < h; ++i) out[i] = from_float<T>(dx[i]);
}

// Initializes the gradients of KV entries: zero, plus the contributions of the suffixes of a
// prefix.
static void begin_gradients(const AttentionTask& task, const BackwardScratch& s, int64_t padded) {
  const int64_t floats = task.rows * task.head_size;
  std::memset(s.d_key, 0, static_cast<size_t>(padded * task.head_size) * sizeof(float));
  std::memset(s.d_value, 0, static_cast<size_t>(padded * task.head_size) * sizeof(float));
  for (int64_t suffix = 0; suffix < task.suffixes; ++suffix) {
    const float* share = task.suffix_shares + suffix * task.share_stride;
    for (int64_t i = 0; i < floats; ++i) s.d_key[i] += share[i];
    for (int64_t i = 0; i < floats; ++i) s.d_value[i] += share[floats + i];
  }
}

// From the gradients of KV entries to those of the projection, and of the shared prefix.
template <class T, int kVectors>
void keys_backward(const AttentionTask& task, const BackwardScratch& s) {
  constexpr int64_t kHead = kVectors * kLanes;
  const int64_t prefix = task.first_position, key_head = task.heads + task.kv_head;
  for (int64_t row = 0; row < task.rows; ++row) {
    const int64_t at = (prefix + row) * kHead;
    head_backward<T>(task, s.d_key + at, row, key_head, {task.k_norm, task.d_k_norm});
    T* d_value = static_cast<T*>(task.d_qkv) + qkv_offset(task, row, key_head + task.kv_heads);
    TLT_UNROLL
    for (int v = 0; v < kVectors; ++v)
      store(d_value + v * kLanes, load(s.d_value + at + v * kLanes));
  }
  if (prefix == 0) return;
  const auto floats = static_cast<size_t>(prefix * kHead);
  std::memcpy(task.d_prefix, s.d_key, floats * sizeof(float));
  std::memcpy(task.d_prefix + floats, s.d_value, floats * sizeof(float));
}

template <class T, int kVectors>
void attend_backward(const AttentionTask& task, const KvPages& cache) {
  constexpr int64_t kHead = kVectors * kLanes;
  const int64_t end = task.first_position + task.rows;
  const int64_t padded = (end + kLanes - 1) / kLanes * kLanes;
  const int64_t group = task.heads / task.kv_heads;
  const BackwardScratch s(task.scratch, padded, kHead);
  widen_pages<T>(task, cache, s);
  begin_gradients(task, s, padded);
  // Queries after the last are zeros and contribute nothing.
  std::memset(s.q, 0, static_cast<size_t>(2 * kBackwardQueries * kHead) * sizeof(float));
  BackwardQuery<kVectors> queries[kBackwardQueries] = {};
  int count = 0;
  const auto flush = [&] {
    queries_backward<kVectors>(s, queries, count);
    for (int i = 0; i < count; ++i) {
      float d_q[kHead];
      for (int v = 0; v < kVectors; ++v) store(d_q + v * kLanes, queries[i].d_q[v]);
      head_backward<T>(task, d_q, queries[i].row, queries[i].head, {task.q_norm, task.d_q_norm});
    }
    count = 0;
  };
  for (int64_t row = 0; row < task.rows; ++row)
    for (int64_t head = task.kv_head * group; head < (task.kv_head + 1) * group; ++head) {
      queries[count].row = row;
      queries[count].head = head;
      load_query<T, kVectors>(task, s, count, queries[count]);
      if (++count == kBackwardQueries) flush();
    }
  if (count > 0) flush();
  keys_backward<T, kVectors>(task, s);
}

template <class T>
void attend_backward_any(const AttentionTask& task, const KvPages& cache) {
  switch (task.head_size / kLanes) {
    case 1:
      return attend_backward<T, 1>(task, cache);
    case 2:
      return attend_backward<T, 2>(task, cache);
    case 3:
      return attend_backward<T, 3>(task, cache);
    case 4:
      return attend_backward<T, 4>(task, cache);
    case 5:
      return attend_backward<T, 5>(task, cache);
    case 6:
      return attend_backward<T, 6>(task, cache);
    case 8:
      return attend_backward<T, 8>(task, cache);
    case 16:
      return attend_backward<T, 16>(task, cache);
    default:
      __builtin_trap();
  }
}

static void attention_backward(Type type, const AttentionTask& task, const KvPages& cache) {
  type == Type::kBf16 ? attend_backward_any<Bf16>(task, cache)
                      : attend_backward_any<float>(task, cache);
}

}  // namespace tlt::ops::TLT_ISA

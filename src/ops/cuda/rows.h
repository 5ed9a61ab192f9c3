// The row-wise kernels between the matrix products: norm, gated activation, rotation of queries and
// keys with their store into the KV cache, copies of rows, KV entries and pages; and gradients.
//
// What each computes is the CPU kernel's arithmetic (ops/cpu/row_kernels.h): float32 inside,
// rounded once. A row's result depends on that row alone. launch.h says what a kernel's struct has.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/elements.h"
#include "ops/cuda/reduce.h"
#include "ops/cuda/row_parameters.h"

namespace tlt::ops::cuda {

constexpr int kRowThreads = 128;
// Columns of a block of an elementwise kernel.
constexpr int64_t kRowSpan = kRowThreads * kFour;

template <class T>
TLT_DEVICE float inverse_rms(const Block& block, const T* x, const NormShape& shape,
                             Reduction<float, kRowThreads>& shared) {
  float sum = 0;
  for (int64_t i = block.thread() * kFour; i < shape.columns; i += kRowSpan) {
    const Four v = load4(x + i);
    for (int k = 0; k < kFour; ++k) sum = fmaf(v.x[k], v.x[k], sum);
  }
  sum = sum_of(block, shared, sum);
  return 1.0f / sqrtf(sum / static_cast<float>(shape.columns) + shape.epsilon);
}

template <class T>
struct RmsNorm {
  using Parameters = NormRows;
  using Shared = Reduction<float, kRowThreads>;
  static constexpr int kThreads = kRowThreads;
  static int64_t blocks(const Parameters& p) { return p.shape.rows; }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared& shared) {
    const int64_t first = block.index() * p.shape.columns;
    const T* x = static_cast<const T*>(p.x) + first;
    T* out = static_cast<T*>(p.out) + first;
    const float scale = inverse_rms(block, x, p.shape, shared);
    for (int64_t i = block.thread() * kFour; i < p.shape.columns; i += kRowSpan) {
      Four v = load4(x + i);
      const Four w = load4(p.weight + i);
      for (int k = 0; k < kFour; ++k) v.x[k] = v.x[k] * scale * w.x[k];
      store4(out + i, v);
    }
  }
};

// y = x s w with s = (mean x^2 + eps)^-1/2:  dx += s (w dy - x s^2 mean(w dy x)). Also leaves s.
template <class T>
struct RmsNormBackward {
  using Parameters = NormBackwardRows;
  using Shared = Reduction<float, kRowThreads>;
  static constexpr int kThreads = kRowThreads;
  static int64_t blocks(const Parameters& p) { return p.shape.rows; }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared& shared) {
    const int64_t columns = p.shape.columns, first = block.index() * columns;
    const T *dy = static_cast<const T*>(p.dy) + first, *x = static_cast<const T*>(p.x) + first;
    T* dx = static_cast<T*>(p.dx) + first;
    const float scale = inverse_rms(block, x, p.shape, shared);
    float inner = 0;
    for (int64_t i = block.thread() * kFour; i < columns; i += kRowSpan) {
      const Four g = load4(dy + i), v = load4(x + i), w = load4(p.weight + i);
      for (int k = 0; k < kFour; ++k) inner = fmaf(g.x[k] * w.x[k], v.x[k], inner);
    }
    inner = sum_of(block, shared, inner);
    const float pull = scale * scale * scale * inner / static_cast<float>(columns);
    for (int64_t i = block.thread() * kFour; i < columns; i += kRowSpan) {
      const Four g = load4(dy + i), v = load4(x + i), w = load4(p.weight + i);
      Four d = load4(dx + i);
      for (int k = 0; k < kFour; ++k) d.x[k] += g.x[k] * w.x[k] * scale - v.x[k] * pull;
      store4(dx + i, d);
    }
    if (block.thread() == 0) p.scales[block.index()] = scale;
  }
};

TLT_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The columns of a block of an elementwise kernel.
struct Span {
  int64_t row, column;
};
TLT_DEVICE Span span_of(const Block& block, int64_t columns) {
  const int spans = static_cast<int>(divide_up(columns, kRowSpan));
  return {block.index() / spans, block.index() % spans * kRowSpan + block.thread() * kFour};
}

template <class T>
struct Swiglu {
  using Parameters = SwigluRows;
  using Shared = NoShared;
  static constexpr int kThreads = kRowThreads;
  static int64_t blocks(const Parameters& p) { return p.rows * divide_up(p.columns, kRowSpan); }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const auto [row, column] = span_of(block, p.columns);
    if (column >= p.columns) return;
    const T* gate_up = static_cast<const T*>(p.gate_up) + row * 2 * p.columns + column;
    Four gate = load4(gate_up);
    const Four up = load4(gate_up + p.columns);
    for (int k = 0; k < kFour; ++k) gate.x[k] = gate.x[k] * sigmoid(gate.x[k]) * up.x[k];
    store4(static_cast<T*>(p.out) + row * p.columns + column, gate);
  }
};

template <class T>
struct SwigluBackward {
  using Parameters = SwigluBackwardRows;
  using Shared = NoShared;
  static constexpr int kThreads = kRowThreads;
  static int64_t blocks(const Parameters& p) { return p.rows * divide_up(p.columns, kRowSpan); }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const auto [row, column] = span_of(block, p.columns);
    if (column >= p.columns) return;
    const int64_t at = row * 2 * p.columns + column;
    const T* gate_up = static_cast<const T*>(p.gate_up) + at;
    const Four d = load4(static_cast<const T*>(p.d_out) + row * p.columns + column),
               gate = load4(gate_up), up = load4(gate_up + p.columns);
    Four d_gate, d_up;
    for (int k = 0; k < kFour; ++k) {
      const float s = sigmoid(gate.x[k]);
      d_gate.x[k] = d.x[k] * up.x[k] * s * (1.0f + gate.x[k] * (1.0f - s));
      d_up.x[k] = d.x[k] * gate.x[k] * s;
    }
    T* to = static_cast<T*>(p.d_gate_up) + at;
    store4(to, d_gate);
    store4(to + p.columns, d_up);
  }
};

// Rows listed in the launch's own parameters: no copy to the device.
template <class T>
struct GatherRows {
  using Parameters = GatheredRows;
  using Shared = NoShared;
  static constexpr int kThreads = kRowThreads;
  static int64_t blocks(const Parameters& p) { return p.count * divide_up(p.columns, kRowSpan); }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const auto [row, column] = span_of(block, p.columns);
    if (column >= p.columns) return;
    copy4(static_cast<T*>(p.out) + row * p.columns + column,
          static_cast<const T*>(p.x) + p.rows[row] * p.columns + column);
  }
};

// The rows of a token are added one after the other, in order: no atomics.
template <class T>
struct EmbedBackward {
  using Parameters = EmbedGradient;
  using Shared = NoShared;
  static constexpr int kThreads = kRowThreads;
  static int64_t blocks(const Parameters& p) { return p.tokens * divide_up(p.columns, kRowSpan); }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const auto [index, column] = span_of(block, p.columns);
    if (column >= p.columns) return;
    float* to = p.dtable + p.ids[index] * p.columns + column;
    Four sum = load4(to);
    const int64_t end = p.begins[index + 1];
    for (int64_t i = p.begins[index]; i < end; ++i) {
      const Four d = load4(static_cast<const T*>(p.dx) + p.rows[i] * p.columns + column);
      for (int k = 0; k < kFour; ++k) sum.x[k] += d.x[k];
    }
    store4(to, sum);
  }
};

constexpr int kMostPairs = 4;  // of a lane: heads of up to 256 elements

// A head in the registers of a warp: pairs (i, i + H / 2), which rotation turns.
struct HeadPairs {
  float a[kMostPairs], b[kMostPairs];
};

// The pair k of a lane in a head of 2 `half` elements.
TLT_DEVICE int pair_of(const Block& block, int k) { return block.lane() + k * kWarp; }

template <class T>
TLT_DEVICE HeadPairs read_head(const Block& block, const T* x, int half) {
  HeadPairs pairs;
  for (int k = 0; k < kMostPairs; ++k) {
    const int i = pair_of(block, k);
    pairs.a[k] = i < half ? to_float(x[i]) : 0;
    pairs.b[k] = i < half ? to_float(x[half + i]) : 0;
  }
  return pairs;
}

template <class T>
TLT_DEVICE void write_head(const Block& block, T* to, int half, const HeadPairs& pairs) {
  for (int k = 0; k < kMostPairs; ++k) {
    const int i = pair_of(block, k);
    if (i >= half) return;
    set(to[i], pairs.a[k]);
    set(to[half + i], pairs.b[k]);
  }
}

// The same bits in all lanes.
TLT_DEVICE float sum_of_warp(const Block& block, float sum) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += block.shuffle_xor(sum, mask);
  return sum;
}

TLT_DEVICE float inverse_rms(const Block& block, const HeadPairs& x, int half, float epsilon) {
  float sum = 0;
  for (int k = 0; k < kMostPairs; ++k) sum = fmaf(x.b[k], x.b[k], fmaf(x.a[k], x.a[k], sum));
  return 1.0f / sqrtf(sum_of_warp(block, sum) / static_cast<float>(2 * half) + epsilon);
}

// `sign` -1 reverses the rotation.
TLT_DEVICE void rotate(const HeadPairs& angles, float sign, HeadPairs& pairs) {
  for (int k = 0; k < kMostPairs; ++k) {
    const float cos = angles.a[k], sin = angles.b[k] * sign, a = pairs.a[k], b = pairs.b[k];
    pairs.a[k] = fmaf(-b, sin, a * cos);
    pairs.b[k] = fmaf(a, sin, b * cos);
  }
}

// The head that a warp has, of those of q, k and v of a row.
struct HeadPlace {
  int64_t row, head;
};
constexpr int kBlockHeads = kRowThreads / kWarp;
TLT_DEVICE HeadPlace head_of(const Block& block, int64_t heads) {
  const int groups = static_cast<int>(divide_up(heads, kBlockHeads));
  return {block.index() / groups, block.index() % groups * kBlockHeads + block.warp()};
}

// What kernels have in common whose warps have such a head.
template <class Rows>
struct HeadKernel {
  using Parameters = Rows;
  using Shared = NoShared;
  static constexpr int kThreads = kRowThreads;
  static int64_t blocks(const Rows& p) {
    return p.rows * divide_up(p.heads + 2 * p.kv_heads, kBlockHeads);
  }
};

template <class T>
struct RopeAndStore : HeadKernel<RopeRows> {
  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const int64_t heads = p.heads + 2 * p.kv_heads;
    const auto [row, head] = head_of(block, heads);
    if (head >= heads || p.positions[row] < 0) return;  // a whole warp
    const int half = static_cast<int>(p.head_size) / 2;
    T* x = static_cast<T*>(p.qkv) + (row * heads + head) * p.head_size;
    HeadPairs pairs = read_head(block, x, half);
    const bool is_query = head < p.heads, is_value = head >= p.heads + p.kv_heads;
    if (!is_value) {
      if (const float* norm = is_query ? p.q_norm : p.k_norm) {
        const float scale = inverse_rms(block, pairs, half, p.norm_epsilon);
        const HeadPairs weight = read_head(block, norm, half);
        for (int k = 0; k < kMostPairs; ++k) {
          pairs.a[k] = pairs.a[k] * scale * weight.a[k];
          pairs.b[k] = pairs.b[k] * scale * weight.b[k];
        }
      }
      rotate(read_head(block, p.cos_sin + p.positions[row] * p.head_size, half), 1, pairs);
      write_head(block, x, half, pairs);
    }
    if (is_query) return;
    write_head(block, entry(p, p.entries[row], (head - p.heads) % p.kv_heads, is_value), half,
               pairs);
  }

 private:
  // Where the key or value of a row goes: a slot of the cache, or the rows of draft trees.
  static TLT_DEVICE T* entry(const Parameters& p, int64_t entry, int64_t kv, bool is_value) {
    if (entry < 0)
      return static_cast<T*>(p.tree) +
             ((~entry * 2 + (is_value ? 1 : 0)) * p.kv_heads + kv) * p.head_size;
    T* page = static_cast<T*>(p.pages.data) + entry / kPageRows * p.pages.page_stride +
              p.pages.layer_offset + kv * p.pages.head_stride;
    return page + ((is_value ? kPageRows : 0) + entry % kPageRows) * p.head_size;
  }
};

// Back through the rotation and the norms, which leave in d_q and d_k what a row adds to the
// gradients of their weights.
template <class T>
struct RopeBackward : HeadKernel<RopeGradient> {
  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const int64_t heads = p.heads + 2 * p.kv_heads;
    const auto [row, head] = head_of(block, heads);
    if (head >= heads) return;  // a whole warp
    const int half = static_cast<int>(p.head_size) / 2;
    const int64_t at = (row * heads + head) * p.head_size;
    float* d = gradient_of(p, row, head);
    HeadPairs pairs = read_head(block, d, half);
    if (head < p.heads + p.kv_heads) {
      rotate(read_head(block, p.cos_sin + p.positions[row] * p.head_size, half), -1, pairs);
      if (const float* norm = head < p.heads ? p.q_norm : p.k_norm) {
        const HeadPairs x = read_head(block, static_cast<const T*>(p.raw_qkv) + at, half);
        const HeadPairs weight = read_head(block, norm, half);
        const float scale = inverse_rms(block, x, half, p.norm_epsilon);
        write_head(block, d, half, times(pairs, x, scale));
        pairs = norm_backward(block, pairs, x, weight, {scale, static_cast<float>(p.head_size)});
      }
    }
    write_head(block, static_cast<T*>(p.d_qkv) + at, half, pairs);
  }

 private:
  struct Scale {
    float inverse_rms, size;
  };

  static TLT_DEVICE float* gradient_of(const Parameters& p, int64_t row, int64_t head) {
    if (head < p.heads) return p.d_q + (row * p.heads + head) * p.head_size;
    const int64_t kv = head - p.heads;
    if (kv < p.kv_heads) return p.d_k + (row * p.kv_heads + kv) * p.head_size;
    return p.d_v + (row * p.kv_heads + kv - p.kv_heads) * p.head_size;
  }

  static TLT_DEVICE HeadPairs times(const HeadPairs& d, const HeadPairs& x, float scale) {
    HeadPairs product;
    for (int k = 0; k < kMostPairs; ++k) {
      product.a[k] = d.a[k] * x.a[k] * scale;
      product.b[k] = d.b[k] * x.b[k] * scale;
    }
    return product;
  }

  // As RmsNormBackward, of a gradient that is 0 before.
  static TLT_DEVICE HeadPairs norm_backward(const Block& block, const HeadPairs& d,
                                            const HeadPairs& x, const HeadPairs& weight,
                                            const Scale& scale) {
    const float s = scale.inverse_rms;
    float inner = 0;
    for (int k = 0; k < kMostPairs; ++k)
      inner = fmaf(d.b[k] * weight.b[k], x.b[k], fmaf(d.a[k] * weight.a[k], x.a[k], inner));
    const float pull = s * s * s * sum_of_warp(block, inner) / scale.size;
    HeadPairs dx;
    for (int k = 0; k < kMostPairs; ++k) {
      dx.a[k] = d.a[k] * weight.a[k] * s - x.a[k] * pull;
      dx.b[k] = d.b[k] * weight.b[k] * s - x.b[k] * pull;
    }
    return dx;
  }
};

// KV entries of accepted paths into the slots of their positions: all sequences and layers.
template <class T>
struct KeepEntries {
  using Parameters = KeptEntries;
  using Shared = NoShared;
  static constexpr int kThreads = kRowThreads;
  static int64_t blocks(const Parameters& p) { return p.layers * p.count; }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const int count = static_cast<int>(p.count);
    const int64_t layer = block.index() / count;
    const KeptEntries::Entry& entry = p.entries[block.index() % count];
    const int64_t values = p.kv_heads * p.head_size;
    const T* from =
        static_cast<const T*>(p.tree) + (layer * p.tree_rows + entry.tree_row) * 2 * values;
    T* page = static_cast<T*>(p.storage) +
              (entry.slot / kPageRows * p.layers + layer) * 2 * kPageRows * values;
    for (int64_t i = block.thread() * kFour; i < 2 * values; i += kRowSpan) {
      const int64_t is_value = i / values, kv = i % values / p.head_size, at = i % p.head_size;
      T* head = page + kv * 2 * kPageRows * p.head_size;
      copy4(head + (is_value * kPageRows + entry.slot % kPageRows) * p.head_size + at, from + i);
    }
  }
};

// Whole pages, in units of 16 bytes.
struct CopyPages {
  using Parameters = CopiedPages;
  using Shared = NoShared;
  static constexpr int kThreads = kRowThreads;
  static constexpr int64_t kUnits = kRowThreads * 8;  // of a block
  static int64_t blocks(const Parameters& p) { return p.count * divide_up(p.units, kUnits); }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const int parts = static_cast<int>(divide_up(p.units, kUnits));
    const int64_t first = block.index() % parts * kUnits;
    const CopiedPages::Copy& copy = p.copies[block.index() / parts];
    const int64_t end = first + kUnits < p.units ? first + kUnits : p.units;
    for (int64_t i = first + block.thread(); i < end; i += kRowThreads)
      copy4(static_cast<float*>(p.storage) + (copy.to * p.units + i) * kFour,
            static_cast<const float*>(p.storage) + (copy.from * p.units + i) * kFour);
  }
};

}  // namespace tlt::ops::cuda

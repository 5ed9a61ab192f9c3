// What a warp does with 16 keys in the kernels of attention: the two multiplications and the online
// softmax between them, on fragments of a multiplication of a warp (ops/cuda/block.h).
//
// Such a multiplication has 16 rows: (query row, head of the KV head's group) pairs. Lane 4 g + t has
// the pairs g and g + 8, and of 8 n columns 8 n + 2 t and 8 n + 2 t + 1. Float32 has no such
// multiplication of full precision; it adds element by element.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/attention_parameters.h"
#include "ops/cuda/elements.h"

namespace tlt::ops::cuda {

constexpr int kAttentionWarps = 4;
constexpr int kKeys = 16;         // of a step
constexpr float kNoTop = -1e30f;  // below every score; a difference of two is finite
constexpr float kLogOf2 = 0.693147180559945309f;

template <class T>
struct alignas(2 * sizeof(T)) TwoOf {
  T x[2];
};
template <class T>
struct alignas(16) Vector {
  static constexpr int kElements = 16 / sizeof(T);
  T x[kElements];
};

TLT_DEVICE uint32_t pack(Bf16 low, Bf16 high) {
  return static_cast<uint32_t>(low.bits) | static_cast<uint32_t>(high.bits) << 16;
}
TLT_DEVICE uint32_t pack(float low, float high) {
  Bf16 a, b;
  set(a, low);
  set(b, high);
  return pack(a, b);
}
TLT_DEVICE uint32_t load_pair(const Bf16* from) {
  const TwoOf<Bf16> two = *reinterpret_cast<const TwoOf<Bf16>*>(from);
  return pack(two.x[0], two.x[1]);
}
template <class T>
TLT_DEVICE void store_pair(T* to, float a, float b) {
  TwoOf<T> two;
  set(two.x[0], a);
  set(two.x[1], b);
  *reinterpret_cast<TwoOf<T>*>(to) = two;
}

// Query rows begin .. end - 1.
struct RowRange {
  int begin, end;
  TLT_DEVICE bool has(int row) const { return row >= begin && row < end; }
  TLT_DEVICE bool meets(const RowRange& other) const {
    return begin < other.end && other.begin < end;
  }
};

// One of the 16 pairs of a warp.
struct Pair {
  int row, head;  // head: of all
  int last;       // the last position it sees; -1: none; kNoRow: it reads another pair's query
};
constexpr int kNoRow = -2;

// What a warp has of its pairs: lane 4 g + t the pairs g and g + 8, and of the values the columns
// 8 n + 2 t and 8 n + 2 t + 1. `out` and `sum` are relative to 2^top.
template <int H>
struct Softmax {
  float out[H / 8][4];
  float top[2];
  float sum[2];

  TLT_DEVICE void clear() {
    TLT_UNROLL_LOOP
    for (int half = 0; half < 2; ++half) top[half] = kNoTop, sum[half] = 0;
    TLT_UNROLL_LOOP
    for (int n = 0; n < H / 8; ++n)
      for (int i = 0; i < 4; ++i) out[n][i] = 0;
  }
};

// The factors that bring two sums to the same top.
struct Shrink {
  float top, a, b;
};
TLT_DEVICE Shrink shrink_to(float a, float b) {
  const float top = fmaxf(a, b);
  return {top, exp2f(a - top), exp2f(b - top)};
}
TLT_DEVICE float add_split(float total, float split, const Shrink& shrink) {
  return fmaf(split, shrink.b, times(total, shrink.a));
}

// The next split of the same pairs.
template <int H>
TLT_DEVICE void add_split(Softmax<H>& total, const Softmax<H>& split) {
  TLT_UNROLL_LOOP
  for (int half = 0; half < 2; ++half) {
    const Shrink shrink = shrink_to(total.top[half], split.top[half]);
    total.top[half] = shrink.top;
    total.sum[half] = add_split(total.sum[half], split.sum[half], shrink);
    TLT_UNROLL_LOOP
    for (int n = 0; n < H / 8; ++n)
      for (int i = 2 * half; i < 2 * half + 2; ++i)
        total.out[n][i] = add_split(total.out[n][i], split.out[n][i], shrink);
  }
}

// Scores, scaled to powers of 2, become weights. s: of the keys 8 n + 2 t and 8 n + 2 t + 1.
template <int H>
TLT_DEVICE void weigh(const Block& block, Softmax<H>& softmax, float (&s)[2][4]) {
  TLT_UNROLL_LOOP
  for (int half = 0; half < 2; ++half) {
    const int i = 2 * half;
    float top = fmaxf(fmaxf(s[0][i], s[0][i + 1]), fmaxf(s[1][i], s[1][i + 1]));
    top = fmaxf(top, block.shuffle_xor(top, 1));
    top = fmaxf(softmax.top[half], fmaxf(top, block.shuffle_xor(top, 2)));
    const float shrink = exp2f(softmax.top[half] - top);
    float sum = times(softmax.sum[half], shrink);
    TLT_UNROLL_LOOP
    for (int n = 0; n < 2; ++n)
      for (int j = i; j < i + 2; ++j) sum += s[n][j] = exp2f(s[n][j] - top);
    softmax.top[half] = top;
    softmax.sum[half] = sum;
    TLT_UNROLL_LOOP
    for (int n = 0; n < H / 8; ++n)
      for (int j = i; j < i + 2; ++j) softmax.out[n][j] = times(softmax.out[n][j], shrink);
  }
}

// The two products of a step. q: the queries of the lane's two pairs. keys, values: 16 rows of
// kRow elements in shared memory.
template <class T, int H, int kRow>
struct Products;

template <int H, int kRow>
struct Products<Bf16, H, kRow> {
  struct Shared {};
  uint32_t q[H / 16][4];

  TLT_DEVICE Products(const Block& block, const Bf16* first, const Bf16* second) {
    const int t = block.lane() % 4;
    TLT_UNROLL_LOOP
    for (int k = 0; k < H / 16; ++k)
      for (int i = 0; i < 4; ++i)
        q[k][i] = load_pair((i % 2 ? second : first) + k * 16 + i / 2 * 8 + 2 * t);
  }
  TLT_DEVICE void scores(const Block& block, const Bf16* keys, float (&s)[2][4]) const {
    const int g = block.lane() / 4, t = block.lane() % 4;
    TLT_UNROLL_LOOP
    for (int n = 0; n < 2; ++n) {
      const Bf16* key = keys + (n * 8 + g) * kRow + 2 * t;
      TLT_UNROLL_LOOP
      for (int k = 0; k < H / 16; ++k) {
        const uint32_t b[2] = {load_pair(key + k * 16), load_pair(key + k * 16 + 8)};
        block.multiply(s[n], q[k], b);
      }
    }
  }
  TLT_DEVICE void add_values(const Block& block, const float (&w)[2][4], const Bf16* values,
                             Shared&, float (&out)[H / 8][4]) const {
    const int g = block.lane() / 4, t = block.lane() % 4;
    const uint32_t a[4] = {pack(w[0][0], w[0][1]), pack(w[0][2], w[0][3]), pack(w[1][0], w[1][1]),
                           pack(w[1][2], w[1][3])};
    TLT_UNROLL_LOOP
    for (int n = 0; n < H / 8; ++n) {
      const Bf16* column = values + 2 * t * kRow + n * 8 + g;
      const uint32_t b[2] = {pack(column[0], column[kRow]),
                             pack(column[8 * kRow], column[9 * kRow])};
      block.multiply(out[n], a, b);
    }
  }
};

template <int H, int kRow>
struct Products<float, H, kRow> {
  struct Shared {
    float weights[kAttentionWarps][kTile][kKeys + 1];
  };
  const float* q[2];

  TLT_DEVICE Products(const Block&, const float* first, const float* second) : q{first, second} {}
  TLT_DEVICE void scores(const Block& block, const float* keys, float (&s)[2][4]) const {
    const float* key = keys + 2 * (block.lane() % 4) * kRow;
    // Without the registers that an unrolled loop takes from the sums.
    TLT_NO_UNROLL
    for (int k = 0; k < H; ++k)
      for (int n = 0; n < 2; ++n)
        for (int i = 0; i < 4; ++i)
          s[n][i] = fmaf(q[i / 2][k], key[(n * 8 + i % 2) * kRow + k], s[n][i]);
  }
  TLT_DEVICE void add_values(const Block& block, const float (&w)[2][4], const float* values,
                             Shared& shared, float (&out)[H / 8][4]) const {
    const int g = block.lane() / 4, t = block.lane() % 4;
    auto& weights = shared.weights[block.warp()];
    TLT_UNROLL_LOOP
    for (int n = 0; n < 2; ++n)
      for (int i = 0; i < 4; ++i) weights[g + i / 2 * 8][n * 8 + 2 * t + i % 2] = w[n][i];
    block.sync_warp();
    TLT_NO_UNROLL
    for (int k = 0; k < kKeys; ++k)
      for (int n = 0; n < H / 8; ++n)
        for (int i = 0; i < 4; ++i)
          out[n][i] =
              fmaf(weights[g + i / 2 * 8][k], values[k * kRow + n * 8 + 2 * t + i % 2], out[n][i]);
    block.sync_warp();
  }
};

}  // namespace tlt::ops::cuda

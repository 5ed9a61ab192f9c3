// Kernels that add many numbers: gradients in fixed point, columns, and the slices of a matrix
// product that is split over its inner dimension. Fixed point is exact in any order; float32 sums
// have a fixed order.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/elements.h"
#include "ops/cuda/reduce.h"
#include "ops/cuda/row_parameters.h"

namespace tlt::ops::cuda {

constexpr int kSumThreads = 128;

TLT_DEVICE float magnitude_value(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// The bits of absolute values are in the order of the values, infinity and NaN last.
struct Larger {
  TLT_DEVICE uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};

// First of two launches: the largest |x| of each part.
struct MagnitudeParts {
  using Parameters = Magnitude;
  using Shared = Reduction<uint32_t, kSumThreads>;
  static constexpr int kThreads = kSumThreads;
  static int64_t blocks(const Parameters& p) { return magnitude_parts(p.count); }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared& shared) {
    const int64_t first = block.index() * kMagnitudeSpan;
    const int64_t end = first + kMagnitudeSpan < p.count ? first + kMagnitudeSpan : p.count;
    uint32_t most = 0;
    for (int64_t i = first + block.thread(); i < end; i += kSumThreads)
      most = Larger()(most, bits_of(p.x[i]) & 0x7fffffffU);
    most = reduce(block, shared, most, Larger());
    if (block.thread() == 0) p.parts[block.index()] = most;
  }
};

struct AddMagnitude {
  using Parameters = Magnitude;
  using Shared = Reduction<uint32_t, kSumThreads>;
  static constexpr int kThreads = kSumThreads;
  static int64_t blocks(const Parameters&) { return 1; }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared& shared) {
    uint32_t most = 0;
    for (int64_t i = block.thread(); i < divide_up(p.count, kMagnitudeSpan); i += kSumThreads)
      most = Larger()(most, p.parts[i]);
    const float value = magnitude_value(reduce(block, shared, most, Larger()));
    if (block.thread() == 0)
      *p.magnitude +=
          value < static_cast<float>(p.limit) ? static_cast<int64_t>(ceilf(value)) : p.invalid;
  }
};

struct AddFixedPoint {
  using Parameters = FixedPointSum;
  using Shared = NoShared;
  static constexpr int kThreads = kSumThreads;
  static constexpr int64_t kSpan = kSumThreads * 4;  // elements of a block
  static int64_t blocks(const Parameters& p) { return divide_up(p.count, kSpan); }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    if (*p.magnitude >= p.limit) return;
    const int64_t first = block.index() * kSpan;
    const int64_t end = first + kSpan < p.count ? first + kSpan : p.count;
    // Times a power of two is exact, so the only rounding is rintf's.
    for (int64_t i = first + block.thread(); i < end; i += kSumThreads)
      p.sums[i] += static_cast<int64_t>(rintf(p.x[i] * 0x1p40f));
  }
};

// A thread has a column of a block of rows.
template <class T>
struct SumColumnParts {
  using Parameters = ColumnParts;
  using Shared = NoShared;
  static constexpr int kThreads = kSumThreads;
  static int64_t blocks(const Parameters& p) {
    return column_blocks(p.rows) * divide_up(p.columns, kSumThreads);
  }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const int spans = static_cast<int>(divide_up(p.columns, kSumThreads));
    const int64_t part = block.index() / spans,
                  column = block.index() % spans * kSumThreads + block.thread();
    if (column >= p.columns) return;
    const T *x = static_cast<const T*>(p.x), *y = static_cast<const T*>(p.y);
    const int64_t first = part * kColumnRows;
    const int64_t end = first + kColumnRows < p.rows ? first + kColumnRows : p.rows;
    float sum = 0;
    for (int64_t row = first; row < end; ++row) {
      const int64_t at = row * p.columns + column;
      sum += y ? to_float(x[at]) * to_float(y[at]) * p.scales[row] : to_float(x[at]);
    }
    p.parts[part * p.columns + column] = sum;
  }
};

// out[c] += parts[0, c] + parts[1, c] + …
struct AddColumnParts {
  using Parameters = ColumnSums;
  using Shared = NoShared;
  static constexpr int kThreads = kSumThreads;
  static int64_t blocks(const Parameters& p) { return divide_up(p.columns, kSumThreads); }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const int64_t column = int64_t{block.index()} * kSumThreads + block.thread();
    if (column >= p.columns) return;
    float sum = p.out[column];
    for (int64_t part = 0; part < p.count; ++part) sum += p.parts[part * p.columns + column];
    p.out[column] = sum;
  }
};

template <class T>
struct SumSlices {
  using Parameters = SliceSum;
  using Shared = NoShared;
  static constexpr int kThreads = kSumThreads;
  static int64_t blocks(const Parameters& p) { return divide_up(p.rows * p.columns, kSumThreads); }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const int64_t at = int64_t{block.index()} * kSumThreads + block.thread();
    if (at >= p.rows * p.columns) return;
    float sum = p.parts[at];
    for (int64_t i = 1; i < p.slices; ++i) sum += p.parts[i * p.slice_stride + at];
    if (p.bias) sum += p.bias[at % p.columns];
    if (p.residual) sum += to_float(static_cast<const T*>(p.residual)[at]);
    set(static_cast<T*>(p.out)[at], sum);
  }
};

}  // namespace tlt::ops::cuda

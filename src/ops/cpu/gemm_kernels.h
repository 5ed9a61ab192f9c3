// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd.h"

namespace tlt::ops::TLT_ISA {

#if defined(__AVX512F__)
// 6 x 4 accumulators, 4 columns and a broadcast: 29 of 32 registers.
template <int kRows>
constexpr int kTileVectors = 4;
#else
// At most 6 x 2 accumulators of half the width, 2 columns and a broadcast: 15 of 16 registers. An
// addition takes 4 cycles and a core begins two in each, so 8 accumulators keep it busy.
template <int kRows>
constexpr int kTileVectors = kRows == 1   ? 4
                             : kRows == 2 ? 2
                                          : 1;
#endif
constexpr int kTileRows = 6;
constexpr int64_t kPanel = 64;

// Cache lines of the next panel that a tile prefetches while it multiplies. Otherwise the first
// tile of a panel would wait for memory, and the others would leave the memory idle. They are
// equally many for each unit: a tile that is through with them early leaves it idle too.
struct Ahead {
  static constexpr int64_t kLine = 64, kLinesOfUnit = kPanel / kLanes;
  static constexpr int64_t kMostReadingRows = 4;  // with so few rows the panel itself is waited for

  const char* lines = nullptr;
  int64_t bytes = 0;  // of a unit

  void prefetch(int64_t unit) const {
    const char* at = lines + unit * bytes;
    for (const char* end = at + bytes; at < end; at += kLine) __builtin_prefetch(at, 0, 2);
  }
};

// Makes the compiler load again what a and b point to. It would hold what the first step has loaded
// in registers for the second one, and accumulators in memory instead.
template <class T>
TLT_INLINE void forget(const T*& a, const T*& b) {
  __asm__("" : "+r"(a), "+r"(b));
}

template <int kRows, class T>
TLT_INLINE void multiply_tile(const GemmTask& task, int64_t row, const T* b, const Ahead& ahead,
                              f32x16 (&acc)[kRows][kTileVectors<kRows>]) {
  constexpr int kElements = Unit<T>::kElements;
  const T* a = static_cast<const T*>(task.a) + row * task.a_row_stride * kElements;
  const int64_t row_step = task.a_row_stride * kElements,
                unit_step = task.a_unit_stride * kElements;
  for (int64_t k = 0; k < task.units; ++k) {
    ahead.prefetch(k);
    TLT_UNROLL
    for (int step = 0; step < Unit<T>::kSteps; ++step) {
      if (Unit<T>::kSteps > 1 && kRows > 1) forget(a, b);
      typename Unit<T>::Step columns[kTileVectors<kRows>];
      TLT_UNROLL
      for (int c = 0; c < kTileVectors<kRows>; ++c)
        columns[c] = load_step(b + (k * kPanel + c * kLanes) * kElements, step);
      TLT_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto x = splat_step(a + r * row_step + k * unit_step, step);
        TLT_UNROLL
        for (int c = 0; c < kTileVectors<kRows>; ++c) acc[r][c] = dot(acc[r][c], x, columns[c]);
      }
    }
  }
}

// One row's values of columns first .. first + count (count < 64 only in the last panel).
template <class T>
TLT_INLINE void store_row(const GemmTask& task, int64_t row, int64_t first, f32x16 value) {
  const int64_t at = row * task.out_stride + first;
  const int64_t left = task.columns - first;
  if (left >= kLanes) {
    if (task.bias) value += load(task.bias + first);
    if (task.residual) value += load(static_cast<const T*>(task.residual) + at);
    if (!task.out_is_float) return store(static_cast<T*>(task.out) + at, value);
    return store(static_cast<float*>(task.out) + at, value);
  }
  float lanes[kLanes];
  store(lanes, value);
  for (int64_t i = 0; i < left; ++i) {
    if (task.bias) lanes[i] += task.bias[first + i];
    if (task.residual) lanes[i] += to_float(static_cast<const T*>(task.residual)[at + i]);
    if (task.out_is_float)
      static_cast<float*>(task.out)[at + i] = lanes[i];
    else
      static_cast<T*>(task.out)[at + i] = from_float<T>(lanes[i]);
  }
}

template <int kRows>
TLT_INLINE void load_accumulators(const GemmTask& task, int64_t row, int64_t first,
                                  f32x16 (&acc)[kRows][kTileVectors<kRows>]) {
  const auto* out = static_cast<const float*>(task.out);
  TLT_UNROLL
  for (int r = 0; r < kRows; ++r) TLT_UNROLL
  for (int c = 0; c < kTileVectors<kRows>; ++c) {
    const int64_t column = first + c * kLanes;
    const float* at = out + (row + r) * task.out_stride + column;
    if (task.columns - column >= kLanes) {
      acc[r][c] = load(at);
    } else {
      float lanes[kLanes] = {};
      for (int64_t i = 0; i < task.columns - column; ++i) lanes[i] = at[i];
      acc[r][c] = load(lanes);
    }
  }
}

template <int kRows, class T>
__attribute__((noinline)) void tile(const GemmTask& task, int64_t row, int64_t panel,
                                    const Ahead& ahead) {
  constexpr int kElements = Unit<T>::kElements;
  const T* b = static_cast<const T*>(task.b) + panel * task.units * kPanel * kElements;
  for (int64_t v = 0; v < kPanel / kLanes; v += kTileVectors<kRows>) {
    const int64_t first = panel * kPanel + v * kLanes;
    if (first >= task.columns) return;
    f32x16 acc[kRows][kTileVectors<kRows>] = {};
    if (task.accumulate) load_accumulators<kRows>(task, row, first, acc);
    multiply_tile<kRows, T>(task, row, b + v * kLanes * kElements, v == 0 ? ahead : Ahead{}, acc);
    TLT_UNROLL
    for (int r = 0; r < kRows; ++r) TLT_UNROLL
    for (int c = 0; c < kTileVectors<kRows>; ++c)
      if (first + c * kLanes < task.columns)
        store_row<T>(task, row + r, first + c * kLanes, acc[r][c]);
  }
}

// A single row is limited by how fast the panel is read: two panels side by side keep enough sums
// in flight.
template <class T>
void multiply_panel(const GemmTask& task, int64_t panel) {
  using Tile = void (*)(const GemmTask&, int64_t, int64_t, const Ahead&);
  static constexpr Tile kTiles[] = {tile<1, T>, tile<2, T>, tile<3, T>,
                                    tile<4, T>, tile<5, T>, tile<6, T>};
  // Tiles of even height: 32 rows are 6 6 5 5 5 5, not 6 6 6 6 6 2.
  const int64_t tiles = (task.rows + kTileRows - 1) / kTileRows;
  const bool is_last = (panel + 1) * kPanel >= task.columns;
  const char* next = static_cast<const char*>(task.b) +
                     (panel + 1) * task.units * Ahead::kLinesOfUnit * Ahead::kLine;
  int64_t row = task.first_row, left = task.rows;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t height = (left + tiles - i - 1) / (tiles - i);
    Ahead ahead;
    if (!is_last && task.rows > Ahead::kMostReadingRows) {
      const int64_t first = (Ahead::kLinesOfUnit * i + tiles - 1) / tiles,
                    last = (Ahead::kLinesOfUnit * (i + 1) + tiles - 1) / tiles;
      ahead = {next + first * task.units * Ahead::kLine, (last - first) * Ahead::kLine};
    }
    kTiles[height - 1](task, row, panel, ahead);
    row += height;
    left -= height;
  }
}

static void gemm(Type type, const GemmTask& task) {
  for (int64_t panel = task.first_panel; panel < task.first_panel + task.panels; ++panel)
    type == Type::kBf16 ? multiply_panel<Bf16>(task, panel) : multiply_panel<float>(task, panel);
}

TLT_INLINE void pack_two_rows(const Bf16* even, const Bf16* odd, int64_t count, Bf16* out) {
  if (count == kPanel && odd) {
    for (int64_t i = 0; i < kPanel; i += kLanes) {
      store_words(out + 2 * i, interleave(&even[i].bits, &odd[i].bits));
    }
    return;
  }
  for (int64_t i = 0; i < kPanel; ++i) {
    out[2 * i] = i < count ? even[i] : Bf16{0};
    out[2 * i + 1] = i < count && odd ? odd[i] : Bf16{0};
  }
}

static void pack_rows(Type type, const PackTask& task) {
  const int64_t rows = task.rows, stride = task.stride;
  for (int64_t panel = task.first_panel; panel < task.first_panel + task.panels; ++panel) {
    const int64_t first = panel * kPanel, left = task.columns - first;
    const int64_t count = left < kPanel ? left : kPanel;
    if (type == Type::kBf16) {
      const int64_t pairs = (rows + 1) / 2;
      auto* to = static_cast<Bf16*>(task.out) + panel * pairs * 2 * kPanel;
      for (int64_t pair = 0; pair < pairs; ++pair) {
        const Bf16* even = static_cast<const Bf16*>(task.x) + 2 * pair * stride + first;
        pack_two_rows(even, 2 * pair + 1 < rows ? even + stride : nullptr, count,
                      to + pair * 2 * kPanel);
      }
    } else {
      auto* to = static_cast<float*>(task.out) + panel * rows * kPanel;
      for (int64_t row = 0; row < rows; ++row) {
        const float* from = static_cast<const float*>(task.x) + row * stride + first;
        for (int64_t i = 0; i < kPanel; ++i) to[row * kPanel + i] = i < count ? from[i] : 0.f;
      }
    }
  }
}

template <class T>
void add_columns_of(const ColumnSumTask& task) {
  const int64_t stride = task.stride, rows = task.rows, end = task.first + task.count;
  const T* x = static_cast<const T*>(task.x);
  float* out = task.out;
  int64_t i = task.first;
  for (; i + kLanes <= end; i += kLanes) {
    f32x16 sum = load(out + i);
    for (int64_t row = 0; row < rows; ++row) sum += load(x + row * stride + i);
    store(out + i, sum);
  }
  for (; i < end; ++i)
    for (int64_t row = 0; row < rows; ++row) out[i] += to_float(x[row * stride + i]);
}

static void add_columns(Type type, const ColumnSumTask& task) {
  type == Type::kBf16 ? add_columns_of<Bf16>(task) : add_columns_of<float>(task);
}

}  // namespace tlt::ops::TLT_ISA

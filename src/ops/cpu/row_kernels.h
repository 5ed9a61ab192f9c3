// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd.h"

namespace tlt::ops::TLT_ISA {

// Columns are a multiple of 16 (model_config.cpp checks it).
template <class T>
TLT_INLINE float inverse_rms(const T* x, int64_t columns, float epsilon) {
  f32x16 sum = {};
  for (int64_t i = 0; i < columns; i += kLanes) {
    const f32x16 v = load(x + i);
    sum = fma(v, v, sum);
  }
  return 1.0f / std::sqrt(sum_lanes(sum) / static_cast<float>(columns) + epsilon);
}

template <class T>
void rms_norm_rows(const T* x, const float* weight, float epsilon, int64_t rows, int64_t columns,
                   T* out) {
  for (int64_t row = 0; row < rows; ++row, x += columns, out += columns) {
    const f32x16 scale = splat(inverse_rms(x, columns, epsilon));
    for (int64_t i = 0; i < columns; i += kLanes)
      store(out + i, load(x + i) * scale * load(weight + i));
  }
}

// y = x s w with s = (mean x^2 + eps)^-1/2:  dx = s (w dy - x s^2 mean(w dy x)),  dw += dy x s.
template <class T>
void rms_norm_backward_rows(const T* dy, const T* x, const float* weight, float epsilon,
                            int64_t rows, int64_t columns, T* dx, float* dweight) {
  for (int64_t row = 0; row < rows; ++row, dy += columns, x += columns, dx += columns) {
    const float scale = inverse_rms(x, columns, epsilon);
    f32x16 inner = {};
    for (int64_t i = 0; i < columns; i += kLanes)
      inner = fma(load(dy + i) * load(weight + i), load(x + i), inner);
    const f32x16 s = splat(scale);
    const f32x16 pull =
        splat(scale * scale * scale * sum_lanes(inner) / static_cast<float>(columns));
    for (int64_t i = 0; i < columns; i += kLanes) {
      const f32x16 g = load(dy + i), v = load(x + i);
      store(dweight + i, load(dweight + i) + g * v * s);
      store(dx + i, load(dx + i) + (g * load(weight + i) * s - v * pull));
    }
  }
}

TLT_INLINE f32x16 sigmoid(f32x16 x) { return 1.0f / (1.0f + exp(-x)); }

template <class T>
void swiglu_rows(const T* gate_up, int64_t rows, int64_t columns, int64_t first, int64_t count,
                 T* out) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * columns, out += columns)
    for (int64_t i = first; i < first + count; i += kLanes) {
      const f32x16 gate = load(gate_up + i);
      store(out + i, gate * sigmoid(gate) * load(gate_up + columns + i));
    }
}

template <class T>
void swiglu_backward_rows(const T* d_out, const T* gate_up, int64_t rows, int64_t columns,
                          T* d_gate_up) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; i += kLanes) {
      const f32x16 d = load(d_out + i), gate = load(gate_up + i), up = load(gate_up + columns + i);
      const f32x16 s = sigmoid(gate);
      store(d_gate_up + i, d * up * s * (1.0f + gate * (1.0f - s)));
      store(d_gate_up + columns + i, d * gate * s);
    }
    d_out += columns;
    gate_up += 2 * columns;
    d_gate_up += 2 * columns;
  }
}

static void rms_norm(Type type, const void* x, const float* weight, float epsilon, int64_t rows,
                     int64_t columns, void* out) {
  type == Type::kBf16 ? rms_norm_rows(static_cast<const bf16*>(x), weight, epsilon, rows, columns,
                                      static_cast<bf16*>(out))
                      : rms_norm_rows(static_cast<const float*>(x), weight, epsilon, rows, columns,
                                      static_cast<float*>(out));
}

static void rms_norm_backward(Type type, const void* dy, const void* x, const float* weight,
                              float epsilon, int64_t rows, int64_t columns, void* dx,
                              float* dweight) {
  type == Type::kBf16
      ? rms_norm_backward_rows(static_cast<const bf16*>(dy), static_cast<const bf16*>(x), weight,
                               epsilon, rows, columns, static_cast<bf16*>(dx), dweight)
      : rms_norm_backward_rows(static_cast<const float*>(dy), static_cast<const float*>(x), weight,
                               epsilon, rows, columns, static_cast<float*>(dx), dweight);
}

static void swiglu(Type type, const void* gate_up, int64_t rows, int64_t columns, int64_t first,
                   int64_t count, void* out) {
  type == Type::kBf16 ? swiglu_rows(static_cast<const bf16*>(gate_up), rows, columns, first, count,
                                    static_cast<bf16*>(out))
                      : swiglu_rows(static_cast<const float*>(gate_up), rows, columns, first, count,
                                    static_cast<float*>(out));
}

static void swiglu_backward(Type type, const void* d_out, const void* gate_up, int64_t rows,
                            int64_t columns, void* d_gate_up) {
  type == Type::kBf16
      ? swiglu_backward_rows(static_cast<const bf16*>(d_out), static_cast<const bf16*>(gate_up),
                             rows, columns, static_cast<bf16*>(d_gate_up))
      : swiglu_backward_rows(static_cast<const float*>(d_out), static_cast<const float*>(gate_up),
                             rows, columns, static_cast<float*>(d_gate_up));
}

static void add_to_float(Type type, const void* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i)
    out[i] += type == Type::kBf16 ? to_float(static_cast<const bf16*>(x)[i])
                                  : static_cast<const float*>(x)[i];
}

}  // namespace tlt::ops::TLT_ISA

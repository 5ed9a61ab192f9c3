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
void rms_norm_rows(const NormTask& task) {
  const float* weight = task.weight;
  const float epsilon = task.epsilon;
  const int64_t columns = task.columns;
  const T* x = static_cast<const T*>(task.x);
  T* out = static_cast<T*>(task.out);
  for (int64_t row = task.rows; row > 0; --row, x += columns, out += columns) {
    const f32x16 scale = splat(inverse_rms(x, columns, epsilon));
    for (int64_t i = 0; i < columns; i += kLanes)
      store(out + i, load(x + i) * scale * load(weight + i));
  }
}

// y = x s w with s = (mean x^2 + eps)^-1/2:  dx = s (w dy - x s^2 mean(w dy x)),  dw += dy x s.
template <class T>
void rms_norm_backward_rows(const NormBackwardTask& task) {
  const float* weight = task.weight;
  float* dweight = task.dweight;
  const float epsilon = task.epsilon;
  const int64_t columns = task.columns;
  const T *dy = static_cast<const T*>(task.dy), *x = static_cast<const T*>(task.x);
  T* dx = static_cast<T*>(task.dx);
  for (int64_t row = task.rows; row > 0; --row, dy += columns, x += columns, dx += columns) {
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
void swiglu_rows(const SwigluTask& task) {
  const int64_t columns = task.columns, end = task.first + task.count;
  const T* gate_up = static_cast<const T*>(task.gate_up);
  T* out = static_cast<T*>(task.out);
  for (int64_t row = task.rows; row > 0; --row, gate_up += 2 * columns, out += columns)
    for (int64_t i = task.first; i < end; i += kLanes) {
      const f32x16 gate = load(gate_up + i);
      store(out + i, gate * sigmoid(gate) * load(gate_up + columns + i));
    }
}

template <class T>
void swiglu_backward_rows(const SwigluBackwardTask& task) {
  const int64_t columns = task.columns;
  const T *d_out = static_cast<const T*>(task.d_out),
          *gate_up = static_cast<const T*>(task.gate_up);
  T* d_gate_up = static_cast<T*>(task.d_gate_up);
  for (int64_t row = task.rows; row > 0; --row) {
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

static void rms_norm(Type type, const NormTask& task) {
  type == Type::kBf16 ? rms_norm_rows<Bf16>(task) : rms_norm_rows<float>(task);
}

static void rms_norm_backward(Type type, const NormBackwardTask& task) {
  type == Type::kBf16 ? rms_norm_backward_rows<Bf16>(task) : rms_norm_backward_rows<float>(task);
}

static void swiglu(Type type, const SwigluTask& task) {
  type == Type::kBf16 ? swiglu_rows<Bf16>(task) : swiglu_rows<float>(task);
}

static void swiglu_backward(Type type, const SwigluBackwardTask& task) {
  type == Type::kBf16 ? swiglu_backward_rows<Bf16>(task) : swiglu_backward_rows<float>(task);
}

static void add_to_float(Type type, const void* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i)
    out[i] += type == Type::kBf16 ? to_float(static_cast<const Bf16*>(x)[i])
                                  : static_cast<const float*>(x)[i];
}

}  // namespace tlt::ops::TLT_ISA

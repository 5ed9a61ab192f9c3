// Elements of tensors as kernels read and write them: computed in float32, rounded once.
//
// For one source under nvcc and g++: times() is a product that no compiler fuses with an addition, so
// both round where the source says it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/cuda/block.h"

namespace tlt::ops::cuda {

// bfloat16 in its memory layout.
struct Bf16 {
  uint16_t bits;
};

TLT_DEVICE float to_float(float x) { return x; }
TLT_DEVICE float to_float(Bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

TLT_DEVICE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

// Rounds to nearest, ties to even, as the CPU kernels do.
TLT_DEVICE void set(float& to, float x) { to = x; }
TLT_DEVICE void set(Bf16& to, float x) {
  const uint32_t bits = bits_of(x);
  to.bits = static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

TLT_DEVICE float times(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

struct NoShared {};

// Four neighbours, one access of memory. REQUIRES: aligned to their size.
constexpr int kFour = 4;
template <class T>
struct alignas(kFour * sizeof(T)) FourOf {
  T x[kFour];
};
struct Four {
  float x[kFour];
};

template <class T>
TLT_DEVICE Four load4(const T* from) {
  const FourOf<T> stored = *reinterpret_cast<const FourOf<T>*>(from);
  Four four;
  for (int i = 0; i < kFour; ++i) four.x[i] = to_float(stored.x[i]);
  return four;
}

template <class T>
TLT_DEVICE void store4(T* to, const Four& four) {
  FourOf<T> stored;
  for (int i = 0; i < kFour; ++i) set(stored.x[i], four.x[i]);
  *reinterpret_cast<FourOf<T>*>(to) = stored;
}

// The same bits.
template <class T>
TLT_DEVICE void copy4(T* to, const T* from) {
  *reinterpret_cast<FourOf<T>*>(to) = *reinterpret_cast<const FourOf<T>*>(from);
}

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace tlt::ops::cuda

// Sixteen float32 lanes, written once for all instruction sets on top of simd_avx512.h and
// simd_avx2.h, which define operations on one or two registers.
//
// Included by kernels.cpp alone, which is compiled once per instruction set (TLT_ISA names it).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#define TLT_INLINE static inline __attribute__((always_inline))

// For loops over registers: arrays of vectors stay in registers only when their indices are
// constants.
#define TLT_UNROLL _Pragma("GCC unroll 16")

#if defined(__AVX512F__)
#include "ops/cpu/simd_avx512.h"
#else
#include "ops/cpu/simd_avx2.h"
#endif

namespace tlt::ops::TLT_ISA {

// bfloat16 in its memory layout.
struct Bf16 {
  uint16_t bits;
};

constexpr int kLanes = 16;

TLT_INLINE f32x16 load(const Bf16* p) { return as_floats(widen(&p->bits) << 16); }
// Rounds to nearest, ties to even; values below 2^-126 may become 0.
TLT_INLINE void store(Bf16* p, f32x16 v) {
#if defined(__AVX512BF16__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      (__m256i)_mm512_maskz_cvtneps_pbh(kAllLanes, (__m512)v));
#else
  const u32x16 bits = as_words(v);
  store_narrow(&p->bits, (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

TLT_INLINE float to_float(float x) { return x; }
TLT_INLINE float to_float(Bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
TLT_INLINE T from_float(float x);
template <>
inline __attribute__((always_inline)) float from_float<float>(float x) {
  return x;
}
template <>
inline __attribute__((always_inline)) Bf16 from_float<Bf16>(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return {static_cast<uint16_t>(bits)};
}

// The operand that a product takes at once: one float32, or a pair of bfloat16 in 32 bits.
template <class T>
struct Unit;
template <>
struct Unit<float> {
  static constexpr int kElements = 1;
  // Steps in which the products of a unit are added, and the type of an operand of a step.
  static constexpr int kSteps = 1;
  using Step = f32x16;
};
#if defined(__AVX512BF16__)
using Bf16Units = u32x16;
template <>
struct Unit<Bf16> {
  static constexpr int kElements = 2;
  static constexpr int kSteps = 1;
  using Step = Bf16Units;
};
#else
// Without an instruction for them, pairs are multiplied as float32.
struct Bf16Units {
  f32x16 first, second;
};
template <>
struct Unit<Bf16> {
  static constexpr int kElements = 2;
  static constexpr int kSteps = 2;
  using Step = f32x16;
};
#endif

TLT_INLINE f32x16 load_step(const float* p, int /*step*/) { return load(p); }
TLT_INLINE f32x16 splat_step(const float* p, int /*step*/) { return load_splat(p); }
// The elements of a unit are `stride` elements apart.
TLT_INLINE f32x16 load_units(const float* p, int64_t /*stride*/ = 1) { return load(p); }
TLT_INLINE f32x16 splat_unit(const float* p) { return load_splat(p); }
// acc + a b, lane by lane; for bfloat16 both products of the pair.
TLT_INLINE f32x16 dot(f32x16 acc, f32x16 a, f32x16 b) { return fma(a, b, acc); }

#if defined(__AVX512BF16__)
TLT_INLINE Bf16Units load_units(const Bf16* p) { return load_words(p); }
TLT_INLINE Bf16Units load_units(const Bf16* p, int64_t stride) {
  return interleave(&p->bits, &p[stride].bits);
}
TLT_INLINE Bf16Units splat_unit(const Bf16* p) {
  uint32_t word = 0;
  std::memcpy(&word, p, sizeof word);
  return splat(word);
}
TLT_INLINE Bf16Units load_step(const Bf16* p, int /*step*/) { return load_units(p); }
TLT_INLINE Bf16Units splat_step(const Bf16* p, int /*step*/) { return splat_unit(p); }
TLT_INLINE f32x16 dot(f32x16 acc, Bf16Units a, Bf16Units b) {
  return (f32x16)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)b);
}
#else
TLT_INLINE f32x16 step_of(u32x16 pairs, int step) {
  return as_floats(step == 0 ? pairs << 16 : pairs & 0xffff0000u);
}
TLT_INLINE f32x16 load_step(const Bf16* p, int step) { return step_of(load_words(p), step); }
TLT_INLINE f32x16 splat_step(const Bf16* p, int step) {
  return step_of(as_words(load_splat(reinterpret_cast<const float*>(p))), step);
}
TLT_INLINE Bf16Units load_units(const Bf16* p) { return {load_step(p, 0), load_step(p, 1)}; }
TLT_INLINE Bf16Units load_units(const Bf16* p, int64_t stride) {
  return {load(p), load(p + stride)};
}
TLT_INLINE Bf16Units splat_unit(const Bf16* p) { return {splat_step(p, 0), splat_step(p, 1)}; }
TLT_INLINE f32x16 dot(f32x16 acc, Bf16Units a, Bf16Units b) {
  return fma(a.second, b.second, fma(a.first, b.first, acc));
}
#endif

// The sum over the lanes, in a fixed order.
TLT_INLINE float sum_lanes(f32x16 v) {
  float x[kLanes];
  store(x, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x[i] += x[i + width];
  return x[0];
}

// Lanes below `count` of v; the others are `other`.
TLT_INLINE f32x16 first_lanes(f32x16 v, int count, float other) {
  static constexpr float kIndex[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return select(load(kIndex) < static_cast<float>(count), v, splat(other));
}

// e^x within 2 ulp (Cephes' polynomial); exactly 1 at 0, exactly 0 below -87.3.
TLT_INLINE f32x16 exp(f32x16 x) {
  const f32x16 magic = splat(12582912.f);  // 1.5 * 2^23: adding it rounds to an integer
  const f32x16 clamped = max(splat(-87.3f), min(x, splat(88.0f)));
  const f32x16 n = fma(clamped, splat(1.44269504088896341f), magic) - magic;
  f32x16 r = fma(n, splat(-0.693359375f), clamped);
  r = fma(n, splat(2.12194440e-4f), r);
  f32x16 y = splat(1.9875691500e-4f);
  y = fma(y, r, splat(1.3981999507e-3f));
  y = fma(y, r, splat(8.3334519073e-3f));
  y = fma(y, r, splat(4.1665795894e-2f));
  y = fma(y, r, splat(1.6666665459e-1f));
  y = fma(y, r, splat(5.0000001201e-1f));
  y = fma(y, r * r, r) + 1.0f;
  return scale_by_power(y, n, x, -87.3f);
}

// 2^x for weights of the type: relative error below 3e-6 for bfloat16, 1e-7 for float32; exactly 1
// at 0, exactly 0 below -126. Minimax polynomials of 2^r, |r| <= 1/2. REQUIRES: x < 127.
template <class T>
TLT_INLINE f32x16 exp2(f32x16 x);
template <>
inline __attribute__((always_inline)) f32x16 exp2<Bf16>(f32x16 x) {
  const f32x16 n = round(x), r = x - n;
  f32x16 y = splat(9.582850757e-03f);
  y = fma(y, r, splat(5.590642813e-02f));
  y = fma(y, r, splat(2.402409868e-01f));
  y = fma(y, r, splat(6.931241928e-01f));
  return scale_by_power(fma(y, r, splat(1.0f)), n, x, -126.0f);
}
template <>
inline __attribute__((always_inline)) f32x16 exp2<float>(f32x16 x) {
  const f32x16 n = round(x), r = x - n;
  f32x16 y = splat(1.535336081e-04f);
  y = fma(y, r, splat(1.339887484e-03f));
  y = fma(y, r, splat(9.618437366e-03f));
  y = fma(y, r, splat(5.550332470e-02f));
  y = fma(y, r, splat(2.402264791e-01f));
  y = fma(y, r, splat(6.931472029e-01f));
  return scale_by_power(fma(y, r, splat(1.0f)), n, x, -126.0f);
}

}  // namespace tlt::ops::TLT_ISA

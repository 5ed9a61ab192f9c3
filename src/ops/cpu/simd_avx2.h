// Sixteen float32 lanes in two registers. g++ keeps generic vectors of 64 bytes in memory where the
// machine has no registers of that size, which made a product ten times slower.
//
// Defines the same names as simd_avx512.h; included only by simd.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace tlt::ops::TLT_ISA {

using f32x8 = float __attribute__((vector_size(32)));
using i32x8 = int32_t __attribute__((vector_size(32)));
using u32x8 = uint32_t __attribute__((vector_size(32)));

#define TLT_FRIEND friend inline __attribute__((always_inline))

// `Mask`: the type of a comparison.
template <class Half, class Lane, class Mask>
struct Halves {
  Half low, high;

  Halves() = default;
  inline __attribute__((always_inline)) Halves(Half first, Half second)
      : low(first), high(second) {}
  // NOLINTNEXTLINE(google-explicit-constructor): numbers mix with vectors as in generic vectors
  inline __attribute__((always_inline)) Halves(Lane x) : low(x - Half{}), high(low) {}

  TLT_FRIEND Halves operator+(Halves a, Halves b) { return {a.low + b.low, a.high + b.high}; }
  TLT_FRIEND Halves operator-(Halves a, Halves b) { return {a.low - b.low, a.high - b.high}; }
  TLT_FRIEND Halves operator*(Halves a, Halves b) { return {a.low * b.low, a.high * b.high}; }
  TLT_FRIEND Halves operator/(Halves a, Halves b) { return {a.low / b.low, a.high / b.high}; }
  TLT_FRIEND Halves operator-(Halves a) { return {-a.low, -a.high}; }
  TLT_FRIEND Halves& operator+=(Halves& a, Halves b) { return a = a + b; }
  TLT_FRIEND Halves& operator-=(Halves& a, Halves b) { return a = a - b; }
  TLT_FRIEND Halves& operator*=(Halves& a, Halves b) { return a = a * b; }
  TLT_FRIEND Mask operator<(Halves a, Halves b) { return {a.low < b.low, a.high < b.high}; }
  TLT_FRIEND Mask operator>(Halves a, Halves b) { return {a.low > b.low, a.high > b.high}; }
  TLT_FRIEND Halves operator&(Halves a, Halves b) { return {a.low & b.low, a.high & b.high}; }
  TLT_FRIEND Halves operator|(Halves a, Halves b) { return {a.low | b.low, a.high | b.high}; }
  TLT_FRIEND Halves operator<<(Halves a, int bits) { return {a.low << bits, a.high << bits}; }
  TLT_FRIEND Halves operator>>(Halves a, int bits) { return {a.low >> bits, a.high >> bits}; }
};
#undef TLT_FRIEND

struct LaneMask {
  i32x8 low, high;
};
using f32x16 = Halves<f32x8, float, LaneMask>;
using i32x16 = Halves<i32x8, int32_t, LaneMask>;
using u32x16 = Halves<u32x8, uint32_t, LaneMask>;

constexpr int kHalf = 8;

TLT_INLINE f32x16 splat(float x) { return {x}; }
TLT_INLINE u32x16 splat(uint32_t x) { return {x}; }
TLT_INLINE float first_lane(f32x16 v) { return v.low[0]; }

TLT_INLINE f32x16 load(const float* p) {
  return {(f32x8)_mm256_loadu_ps(p), (f32x8)_mm256_loadu_ps(p + kHalf)};
}
// *p in all lanes.
TLT_INLINE f32x16 load_splat(const float* p) {
  const auto half = (f32x8)_mm256_broadcast_ss(p);
  return {half, half};
}
TLT_INLINE void store(float* p, f32x16 v) {
  _mm256_storeu_ps(p, (__m256)v.low);
  _mm256_storeu_ps(p + kHalf, (__m256)v.high);
}
TLT_INLINE u32x16 load_words(const void* p) {
  const auto* at = static_cast<const __m256i*>(p);
  return {(u32x8)_mm256_loadu_si256(at), (u32x8)_mm256_loadu_si256(at + 1)};
}
TLT_INLINE void store_words(void* p, u32x16 v) {
  auto* at = static_cast<__m256i*>(p);
  _mm256_storeu_si256(at, (__m256i)v.low);
  _mm256_storeu_si256(at + 1, (__m256i)v.high);
}

TLT_INLINE u32x8 widen_half(const uint16_t* p) {
  return (u32x8)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TLT_INLINE u32x16 widen(const uint16_t* p) { return {widen_half(p), widen_half(p + kHalf)}; }
// REQUIRES: lanes below 2^16.
TLT_INLINE void store_narrow(uint16_t* p, u32x16 x) {
  const __m256i packed = _mm256_packus_epi32((__m256i)x.low, (__m256i)x.high);  // 0 2 1 3
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
// a0 b0 a1 b1 … of sixteen elements each.
TLT_INLINE u32x16 interleave(const uint16_t* a, const uint16_t* b) {
  return widen(a) | (widen(b) << 16);
}

TLT_INLINE f32x16 as_floats(u32x16 v) { return {(f32x8)v.low, (f32x8)v.high}; }
TLT_INLINE u32x16 as_words(f32x16 v) { return {(u32x8)v.low, (u32x8)v.high}; }

TLT_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  return {(f32x8)_mm256_fmadd_ps((__m256)a.low, (__m256)b.low, (__m256)c.low),
          (f32x8)_mm256_fmadd_ps((__m256)a.high, (__m256)b.high, (__m256)c.high)};
}
// The second operand if they are equal or one is NaN.
TLT_INLINE f32x8 max_half(f32x8 a, f32x8 b) { return (f32x8)_mm256_max_ps((__m256)a, (__m256)b); }
TLT_INLINE f32x16 max(f32x16 a, f32x16 b) {
  return {max_half(a.low, b.low), max_half(a.high, b.high)};
}
TLT_INLINE f32x16 min(f32x16 a, f32x16 b) {
  return {(f32x8)_mm256_min_ps((__m256)a.low, (__m256)b.low),
          (f32x8)_mm256_min_ps((__m256)a.high, (__m256)b.high)};
}
// `mask`: result of a comparison.
TLT_INLINE f32x16 select(LaneMask mask, f32x16 a, f32x16 b) {
  return {(f32x8)_mm256_blendv_ps((__m256)b.low, (__m256)a.low, (__m256)mask.low),
          (f32x8)_mm256_blendv_ps((__m256)b.high, (__m256)a.high, (__m256)mask.high)};
}

// Whether any lane is above x.
TLT_INLINE bool any_above(f32x16 v, float x) {
  const LaneMask above = v > x;
  return _mm256_movemask_ps((__m256)(above.low | above.high)) != 0;
}
TLT_INLINE float max_lanes(f32x16 v) {
  f32x8 m = max_half(v.low, v.high);
  m = max_half(m, __builtin_shufflevector(m, m, 4, 5, 6, 7, 0, 1, 2, 3));
  m = max_half(m, __builtin_shufflevector(m, m, 2, 3, 0, 1, 6, 7, 4, 5));
  m = max_half(m, __builtin_shufflevector(m, m, 1, 0, 3, 2, 5, 4, 7, 6));
  return m[0];
}

// To the nearest integer.
TLT_INLINE f32x16 round(f32x16 v) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {(f32x8)_mm256_round_ps((__m256)v.low, kNearest),
          (f32x8)_mm256_round_ps((__m256)v.high, kNearest)};
}
// y 2^n for integers n with normal results; exactly 0 where x < least.
TLT_INLINE f32x16 scale_by_power(f32x16 y, f32x16 n, f32x16 x, float least) {
  const auto power = [](f32x8 half) {
    return (f32x8)((__builtin_convertvector(half, i32x8) + 127) << 23);
  };
  return select(x < least, f32x16(0.0f), y * f32x16(power(n.low), power(n.high)));
}

}  // namespace tlt::ops::TLT_ISA

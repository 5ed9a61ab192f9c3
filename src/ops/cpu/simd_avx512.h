// Sixteen float32 lanes in one register: operations that AVX-512 has in one or few instructions.
//
// Defines the same names as simd_avx2.h; included only by simd.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace tlt::ops::TLT_ISA {

using f32x16 = float __attribute__((vector_size(64)));
using i32x16 = int32_t __attribute__((vector_size(64)));
using u32x16 = uint32_t __attribute__((vector_size(64)));

// The forms without a mask make g++ 12 warn of an uninitialized register; the code is the same.
constexpr __mmask16 kAllLanes = 0xffff;

TLT_INLINE f32x16 splat(float x) { return x - f32x16{}; }
TLT_INLINE u32x16 splat(uint32_t x) { return x - u32x16{}; }
TLT_INLINE float first_lane(f32x16 v) { return v[0]; }

TLT_INLINE f32x16 load(const float* p) {
  f32x16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
// *p in all lanes.
TLT_INLINE f32x16 load_splat(const float* p) { return splat(*p); }
TLT_INLINE void store(float* p, f32x16 v) { std::memcpy(p, &v, sizeof v); }
TLT_INLINE u32x16 load_words(const void* p) {
  u32x16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
TLT_INLINE void store_words(void* p, u32x16 v) { std::memcpy(p, &v, sizeof v); }

// __builtin_convertvector gives the same bits with three times the instructions.
TLT_INLINE u32x16 widen(const uint16_t* p) {
  return (u32x16)_mm512_maskz_cvtepu16_epi32(
      kAllLanes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// The lower halves.
TLT_INLINE void store_narrow(uint16_t* p, u32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_maskz_cvtepi32_epi16(kAllLanes, (__m512i)x));
}
// a0 b0 a1 b1 … of sixteen elements each.
TLT_INLINE u32x16 interleave(const uint16_t* a, const uint16_t* b) {
  const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const auto row = [](const uint16_t* at) {
    return _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  };
  return (u32x16)_mm512_permutex2var_epi16(row(a), order, row(b));
}

TLT_INLINE f32x16 as_floats(u32x16 v) { return (f32x16)v; }
TLT_INLINE u32x16 as_words(f32x16 v) { return (u32x16)v; }

TLT_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  return (f32x16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
// The second operand if they are equal or one is NaN.
TLT_INLINE f32x16 max(f32x16 a, f32x16 b) {
  return (f32x16)_mm512_maskz_max_ps(kAllLanes, (__m512)a, (__m512)b);
}
TLT_INLINE f32x16 min(f32x16 a, f32x16 b) {
  return (f32x16)_mm512_maskz_min_ps(kAllLanes, (__m512)a, (__m512)b);
}
// `mask`: result of a comparison.
TLT_INLINE f32x16 select(i32x16 mask, f32x16 a, f32x16 b) { return mask ? a : b; }

// Whether any lane is above x.
TLT_INLINE bool any_above(f32x16 v, float x) {
  return _mm512_cmp_ps_mask((__m512)v, _mm512_set1_ps(x), _CMP_GT_OQ) != 0;
}
TLT_INLINE float max_lanes(f32x16 v) {
  v = max(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = max(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  v = max(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  v = max(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  return v[0];
}

// To the nearest integer.
TLT_INLINE f32x16 round(f32x16 v) {
  return (f32x16)_mm512_maskz_roundscale_ps(kAllLanes, (__m512)v,
                                            _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// y 2^n for integers n; exactly 0 where x < least.
TLT_INLINE f32x16 scale_by_power(f32x16 y, f32x16 n, f32x16 x, float least) {
  return (f32x16)_mm512_maskz_scalef_ps(
      _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(least), _CMP_NLT_UQ), (__m512)y, (__m512)n);
}

}  // namespace tlt::ops::TLT_ISA

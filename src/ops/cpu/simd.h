// Sixteen float32 lanes, written once for every instruction set: the compiler splits the vectors
// where the machine's are shorter. Only the fused multiply-add and the bfloat16 dot product are
// spelled by hand.
//
// Included by kernels.cpp alone, which is compiled once per instruction set (TLT_ISA names it).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <limits>

#define TLT_INLINE static inline __attribute__((always_inline))

// Before a loop over registers: arrays of vectors stay in registers only when their indices are
// constants.
#define TLT_UNROLL _Pragma("GCC unroll 16")

namespace tlt::ops::TLT_ISA {

using f32x16 = float __attribute__((vector_size(64)));
using i32x16 = int32_t __attribute__((vector_size(64)));
using u32x16 = uint32_t __attribute__((vector_size(64)));
using u16x16 = uint16_t __attribute__((vector_size(32)));

// bfloat16 as it lies in memory.
struct bf16 {
  uint16_t bits;
};

constexpr int kLanes = 16;

TLT_INLINE f32x16 splat(float x) { return x - f32x16{}; }

TLT_INLINE f32x16 load(const float* p) {
  f32x16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
TLT_INLINE void store(float* p, f32x16 v) { std::memcpy(p, &v, sizeof v); }

#if defined(__AVX512F__)
// The forms without a mask make g++ 12 warn of an uninitialized register; the code is the same.
constexpr __mmask16 kAllLanes = 0xffff;
#endif

// __builtin_convertvector gives the same bits, with three times the instructions.
TLT_INLINE u32x16 widen(const uint16_t* p) {
#if defined(__AVX512F__)
  return (u32x16)_mm512_maskz_cvtepu16_epi32(
      kAllLanes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#else
  union {
    __m256i half[2];
    u32x16 whole;
  } x;
  x.half[0] = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  x.half[1] = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)));
  return x.whole;
#endif
}
// The lower halves.
TLT_INLINE u16x16 narrow(u32x16 x) {
#if defined(__AVX512F__)
  return (u16x16)_mm512_maskz_cvtepi32_epi16(kAllLanes, (__m512i)x);
#else
  return __builtin_convertvector(x, u16x16);
#endif
}

TLT_INLINE f32x16 load(const bf16* p) { return (f32x16)(widen(&p->bits) << 16); }
// Rounds to nearest, ties to even.
TLT_INLINE void store(bf16* p, f32x16 v) {
#if defined(__AVX512BF16__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      (__m256i)_mm512_maskz_cvtneps_pbh(kAllLanes, (__m512)v));
  return;
#endif
  u32x16 bits = (u32x16)v;
  bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const u16x16 out = narrow(bits);
  std::memcpy(p, &out, sizeof out);
}

TLT_INLINE float to_float(float x) { return x; }
TLT_INLINE float to_float(bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
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
inline __attribute__((always_inline)) bf16 from_float<bf16>(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return {static_cast<uint16_t>(bits)};
}

#if defined(__AVX512F__)

TLT_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  return (f32x16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

#else

TLT_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  union {
    f32x16 whole;
    __m256 half[2];
  } x{a}, y{b}, z{c};
  z.half[0] = _mm256_fmadd_ps(x.half[0], y.half[0], z.half[0]);
  z.half[1] = _mm256_fmadd_ps(x.half[1], y.half[1], z.half[1]);
  return z.whole;
}

#endif

// The unit a product takes at once: one float32, or a pair of bfloat16 in 32 bits.
template <class T>
struct Unit;
template <>
struct Unit<float> {
  static constexpr int kElements = 1;
  using Vector = f32x16;
};
template <>
struct Unit<bf16> {
  static constexpr int kElements = 2;
  using Vector = u32x16;
};

TLT_INLINE f32x16 load_units(const float* p) { return load(p); }
TLT_INLINE u32x16 load_units(const bf16* p) {
  u32x16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
// The units of each lane lie in rows of that many elements, one below the other.
TLT_INLINE f32x16 load_units(const float* p, int64_t /*stride*/) { return load(p); }
TLT_INLINE u32x16 load_units(const bf16* p, int64_t stride) {
#if defined(__AVX512BW__)
  const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const auto row = [](const bf16* at) {
    return _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  };
  return (u32x16)_mm512_permutex2var_epi16(row(p), order, row(p + stride));
#else
  return widen(&p->bits) | (widen(&p[stride].bits) << 16);
#endif
}
TLT_INLINE f32x16 splat_unit(const float* p) { return splat(*p); }
TLT_INLINE u32x16 splat_unit(const bf16* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word - u32x16{};
}

// acc + a b, lane by lane; for bfloat16 both products of the pair.
TLT_INLINE f32x16 dot(f32x16 acc, f32x16 a, f32x16 b) { return fma(a, b, acc); }
TLT_INLINE f32x16 dot(f32x16 acc, u32x16 a, u32x16 b) {
#if defined(__AVX512BF16__)
  return (f32x16)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)b);
#else
  acc = fma((f32x16)(a << 16), (f32x16)(b << 16), acc);
  return fma((f32x16)(a & 0xffff0000u), (f32x16)(b & 0xffff0000u), acc);
#endif
}

TLT_INLINE f32x16 max(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
  return (f32x16)_mm512_maskz_max_ps(kAllLanes, (__m512)a, (__m512)b);
#else
  return a > b ? a : b;
#endif
}
TLT_INLINE f32x16 min(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
  return (f32x16)_mm512_maskz_min_ps(kAllLanes, (__m512)a, (__m512)b);
#else
  return a < b ? a : b;
#endif
}

// Sums and maxima over the lanes, in a fixed order.
TLT_INLINE float sum_lanes(f32x16 v) {
  float x[kLanes];
  store(x, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x[i] += x[i + width];
  return x[0];
}
TLT_INLINE float max_lanes(f32x16 v) {
  v = max(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = max(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  v = max(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  v = max(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  return v[0];
}

// Whether any lane is above x.
TLT_INLINE bool any_above(f32x16 v, float x) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)v, _mm512_set1_ps(x), _CMP_GT_OQ) != 0;
#else
  return max_lanes(v) > x;
#endif
}

// Lanes below `count` of v, the others `other`.
TLT_INLINE f32x16 first_lanes(f32x16 v, int count, float other) {
  const i32x16 index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return index < count ? v : splat(other);
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
#if defined(__AVX512F__)
  return (f32x16)_mm512_maskz_scalef_ps(
      _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.3f), _CMP_NLT_UQ), (__m512)y, (__m512)n);
#else
  const i32x16 power = (__builtin_convertvector(n, i32x16) + 127) << 23;
  y = y * (f32x16)power;
  return x < -87.3f ? f32x16{} : y;
#endif
}

}  // namespace tlt::ops::TLT_ISA

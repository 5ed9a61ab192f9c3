// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd.h"

namespace tlt::ops::TLT_ISA {

// Sixteen logits from `at`; those from index `count` read as `other`.
TLT_INLINE f32x16 load_tail(const float* logits, int64_t at, int64_t count, float other) {
  if (at + kLanes <= count) return load(logits + at);
  float lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = at + i < count ? logits[at + i] : other;
  return load(lanes);
}

constexpr float kLowest = -std::numeric_limits<float>::max();

static RowStatistic row_statistic(const float* logits, int64_t count, float inverse_temperature,
                                  bool with_entropy) {
  f32x16 top = splat(kLowest);
  for (int64_t i = 0; i < count; i += kLanes) top = max(top, load_tail(logits, i, count, kLowest));
  const f32x16 shift = splat(max_lanes(top)), scale = splat(inverse_temperature);
  f32x16 sum = {}, weighted = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    const f32x16 z = (load_tail(logits, i, count, kLowest) - shift) * scale;
    const f32x16 e = exp(z);
    sum += e;
    if (with_entropy) weighted += select(e > 0.0f, e * z, f32x16{});
  }
  const float total = sum_lanes(sum), log_total = std::log(total);
  return {.top = first_lane(shift),
          .log_sum = log_total,
          .entropy = with_entropy ? log_total - sum_lanes(weighted) / total : 0};
}

static int32_t pick(const float* logits, int64_t count, float inverse_temperature, float lse,
                    double u) {
  const f32x16 scale = splat(inverse_temperature), shift = splat(lse);
  double passed = 0;
  int64_t last_possible = 0;
  for (int64_t i = 0; i < count; i += kLanes) {
    const f32x16 p = exp(load_tail(logits, i, count, kLowest) * scale - shift);
    const double block = sum_lanes(p);
    if (passed + block > u) {
      float lanes[kLanes];
      store(lanes, p);
      double reached = passed;
      for (int64_t lane = 0; lane < kLanes && i + lane < count; ++lane) {
        reached += lanes[lane];
        if (reached > u) return static_cast<int32_t>(i + lane);
      }
    }
    passed += block;
    if (block > 0) last_possible = i;
  }
  // The float32 probabilities sum to less than u: the last token with any probability.
  int64_t last = last_possible;
  float p[kLanes];
  store(p, exp(load_tail(logits, last_possible, count, kLowest) * scale - shift));
  for (int64_t lane = 0; lane < kLanes && last_possible + lane < count; ++lane)
    if (p[lane] > 0) last = last_possible + lane;
  return static_cast<int32_t>(last);
}

static int32_t arg_max(const float* logits, int64_t count) {
  f32x16 top = splat(kLowest);
  for (int64_t i = 0; i < count; i += kLanes) top = max(top, load_tail(logits, i, count, kLowest));
  const float best = max_lanes(top);
  for (int64_t i = 0; i < count; ++i)
    if (logits[i] == best) return static_cast<int32_t>(i);
  return 0;
}

constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

static float block_tops(const float* logits, int64_t count, float* tops) {
  f32x16 top = splat(kNoLogit);
  for (int64_t first = 0; first < count; first += kTopBlock) {
    f32x16 of_block = splat(kNoLogit);
    TLT_UNROLL
    for (int64_t i = first; i < first + kTopBlock; i += kLanes)
      of_block = max(load_tail(logits, i, count, kNoLogit), of_block);
    tops[first / kTopBlock] = max_lanes(of_block);
    top = max(of_block, top);
  }
  return max_lanes(top);
}

// 2^x for x <= 0, within 2e-7; results below 2^-120 are 2^-120.
TLT_INLINE f32x16 small_exp2(f32x16 x) {
  const f32x16 magic = splat(12582912.f);  // 1.5 * 2^23: adding it rounds to an integer
  x = max(x, splat(-120.f));
  const f32x16 rounded = x + magic;
  const f32x16 r = x - (rounded - magic);
  f32x16 y = splat(1.3395564e-3f);
  y = fma(y, r, splat(9.6183524e-3f));
  y = fma(y, r, splat(5.5503294e-2f));
  y = fma(y, r, splat(2.4022648e-1f));
  y = fma(y, r, splat(6.9314718e-1f));
  y = fma(y, r, splat(1.0f));
  return as_floats(as_words(y) + (as_words(rounded) << 23));
}

static float sum_of_exp(const float* logits, int64_t count, float shift,
                        float inverse_temperature) {
  const float to_base_2 = inverse_temperature * 1.44269504088896341f;
  const f32x16 scale = splat(to_base_2), offset = splat(-shift * to_base_2);
  f32x16 sums[2] = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    sums[0] += small_exp2(fma(load(logits + i), scale, offset));
    sums[1] += small_exp2(fma(load(logits + i + kLanes), scale, offset));
  }
  for (; i < count; i += kLanes)
    sums[0] += small_exp2(fma(load_tail(logits, i, count, kLowest), scale, offset));
  return sum_lanes(sums[0] + sums[1]);
}

// d/d logit_j = 1/T (d_logprob ([j = target] - p_j) - d_entropy p_j (log p_j + entropy)).
static void logits_backward(const LogitsTask& task) {
  float* logits = task.logits;
  const int64_t count = task.count, columns = task.columns;
  const float entropy = task.entropy, d_logprob = task.d_logprob, d_entropy = task.d_entropy;
  const f32x16 scale = splat(task.inverse_temperature), shift = splat(task.lse);
  for (int64_t i = 0; i < columns; i += kLanes) {
    const f32x16 log_p = load_tail(logits, i, count, kLowest) * scale - shift;
    const f32x16 p = exp(log_p);
    f32x16 d = -d_logprob * p;
    if (d_entropy != 0) d -= select(p > 0.0f, d_entropy * p * (log_p + entropy), f32x16{});
    d *= scale;
    if (i + kLanes <= columns) {
      store(logits + i, d);
    } else {
      float lanes[kLanes];
      store(lanes, d);
      for (int64_t lane = 0; i + lane < columns; ++lane) logits[i + lane] = lanes[lane];
    }
  }
  logits[task.target] += d_logprob * task.inverse_temperature;
}

}  // namespace tlt::ops::TLT_ISA

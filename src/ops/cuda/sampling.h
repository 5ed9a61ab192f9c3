// The kernels between logits and tokens: statistics of a row, sampling, the most likely tokens, and
// the gradient of logits. A block has a row, a row's result depends on that row alone, and nothing
// of the size of the vocabulary leaves the device.
//
// Sampling adds probabilities in fixed point, so the sum of a range of ids is exact whatever way it
// is divided over threads, and the token is the smallest id whose cumulative probability exceeds
// the uniform, as on the CPU (ops/cpu/sampling_kernels.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/elements.h"
#include "ops/cuda/reduce.h"
#include "ops/cuda/row_parameters.h"

namespace tlt::ops::cuda {

constexpr int kLogitsThreads = 256;
constexpr float kLowest = -3.402823466e38f;
constexpr int32_t kNoToken = 0x7fffffff;

// A token and its logit; the better one has the larger logit, of equals the lower id.
struct Choice {
  float logit;
  int32_t token;
};
TLT_DEVICE bool is_better(const Choice& a, const Choice& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

struct Better {
  TLT_DEVICE Choice operator()(const Choice& a, const Choice& b) const {
    return is_better(a, b) ? a : b;
  }
};

struct LogitsShared {
  Reduction<float, kLogitsThreads> floats;
  Reduction<Choice, kLogitsThreads> choices;
  Reduction<uint64_t, kLogitsThreads> shares;
};

struct Statistic {
  float top, log_sum, entropy;
};

// Of z = (logits - top) / temperature: log sum e^z, and the entropy of softmax(z). The engine's and
// the trainer's logprobs and entropies both come from here.
TLT_DEVICE Statistic statistic(const Block& block, const float* logits, int64_t count,
                               float inverse, LogitsShared& shared) {
  float top = kLowest;
  for (int64_t i = block.thread(); i < count; i += kLogitsThreads) top = fmaxf(top, logits[i]);
  top = largest_of(block, shared.floats, top);
  float sum = 0, weighted = 0;
  for (int64_t i = block.thread(); i < count; i += kLogitsThreads) {
    const float z = (logits[i] - top) * inverse, e = expf(z);
    sum += e;
    if (e > 0) weighted += e * z;
  }
  sum = sum_of(block, shared.floats, sum);
  weighted = sum_of(block, shared.floats, weighted);
  const float log_sum = logf(sum);
  return {top, log_sum, log_sum - weighted / sum};
}

TLT_DEVICE float logprob_of(const Statistic& row, float logit, float inverse) {
  return (logit - row.top) * inverse - row.log_sum;
}

TLT_DEVICE float lse_of(const Statistic& row, float inverse) {
  return row.top * inverse + row.log_sum;
}

// The lowest id of the largest logits.
TLT_DEVICE int32_t arg_max(const Block& block, const float* logits, int64_t count,
                           LogitsShared& shared) {
  Choice best{kLowest, kNoToken};
  for (int64_t i = block.thread(); i < count; i += kLogitsThreads)
    best = Better()(best, {logits[i], static_cast<int32_t>(i)});
  return reduce(block, shared.choices, best, Better()).token;
}

// A probability times 2^53, which is where a uniform has its last bit; rounded up, so that every
// possible token has a share.
TLT_DEVICE uint64_t share_of(float logit, float inverse, float lse) {
  const float p = expf(logit * inverse - lse);
  return p == p ? static_cast<uint64_t>(ceilf(p * 0x1p53f)) : 0;
}

// The range of ids first … end-1 that holds the pick, and the share of all ids before it.
struct PickRange {
  int64_t first, end;
  uint64_t passed;
};

// The part of the range, of kParts equal ones, in which the shares exceed the uniform; if they
// never do, because float32 probabilities add up to less, the last part with any.
TLT_DEVICE PickRange narrow(const PickRange& range, uint64_t uniform, const uint64_t* shares) {
  constexpr int kParts = kLogitsThreads / 32;
  const int64_t size = divide_up(range.end - range.first, kParts);
  uint64_t passed = range.passed;
  PickRange last{range.first, range.first + size, passed};
  for (int part = 0; part < kParts; ++part) {
    uint64_t sum = 0;
    for (int lane = 0; lane < 32; ++lane) sum += shares[part * 32 + lane];
    if (sum > 0) last = {range.first + part * size, range.first + (part + 1) * size, passed};
    passed += sum;
    if (passed > uniform) break;
  }
  last.end = last.end < range.end ? last.end : range.end;
  return last;
}

TLT_DEVICE int32_t pick(const Block& block, const float* logits, int64_t count,
                        const SampledRow& row, float lse, LogitsShared& shared) {
  PickRange range{0, count, 0};
  while (range.end - range.first > 1) {
    const int64_t size = divide_up(range.end - range.first, kLogitsThreads / 32);
    const int64_t first = range.first + block.thread() / 32 * size;
    const int64_t end = first + size < range.end ? first + size : range.end;
    uint64_t sum = 0;
    for (int64_t i = first + block.thread() % 32; i < end; i += 32)
      sum += share_of(logits[i], row.inverse_temperature, lse);
    shared.shares.values[block.thread()] = sum;
    block.sync();
    range = narrow(range, row.uniform, shared.shares.values);
    block.sync();
  }
  return static_cast<int32_t>(range.first);
}

struct Sample {
  using Parameters = SampledRows;
  using Shared = LogitsShared;
  static constexpr int kThreads = kLogitsThreads;
  static int64_t blocks(const Parameters& p) { return p.count; }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared& shared) {
    const SampledRow& row = p.rows[block.index()];
    const float* logits = p.logits + row.row * p.stride;
    const bool greedy = row.inverse_temperature == 0;
    const float inverse = greedy ? 1.0f : row.inverse_temperature;
    const Statistic all = statistic(block, logits, p.vocabulary, inverse, shared);
    int32_t token = 0;
    if (row.uniform >= kGivenToken) {
      token = static_cast<int32_t>(row.uniform - kGivenToken);
    } else if (greedy) {
      token = arg_max(block, logits, p.allowed, shared);
    } else {
      const Statistic allowed =
          p.allowed < p.vocabulary ? statistic(block, logits, p.allowed, inverse, shared) : all;
      token = pick(block, logits, p.allowed, row, lse_of(allowed, inverse), shared);
    }
    if (block.thread() > 0) return;
    const bool is_finite =
        fabsf(all.top) <= -kLowest && fabsf(all.log_sum) <= -kLowest && token < p.allowed;
    p.sampled[block.index()] = {is_finite ? token : -1,
                                is_finite ? logprob_of(all, logits[token], inverse) : 0,
                                is_finite ? all.entropy : 0};
  }
};

struct RowStatistics {
  using Parameters = StatisticRows;
  using Shared = LogitsShared;
  static constexpr int kThreads = kLogitsThreads;
  static int64_t blocks(const Parameters& p) { return p.rows; }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared& shared) {
    const int64_t row = block.index();
    const float* logits = p.logits + row * p.stride;
    const Statistic all = statistic(block, logits, p.vocabulary, p.inverse_temperature, shared);
    if (block.thread() > 0) return;
    const int32_t target = p.targets[row];
    const bool is_token = target >= 0 && target < p.vocabulary;
    p.logprobs[row] = is_token ? logprob_of(all, logits[target], p.inverse_temperature) : INFINITY;
    p.lse[row] = lse_of(all, p.inverse_temperature);
    p.entropies[row] = all.entropy;
  }
};

// The k most likely tokens, and the probability of the ids before each. A thread keeps the best of
// its own ids; the best of all is taken k times.
struct FindTopTokens {
  using Parameters = TopRows;
  using Shared = LogitsShared;
  static constexpr int kThreads = kLogitsThreads;
  static int64_t blocks(const Parameters& p) { return p.count; }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared& shared) {
    const float* logits = p.logits + (p.first_row + block.index()) * p.stride;
    const float inverse = p.inverse_temperatures[block.index()];
    const float lse = lse_of(statistic(block, logits, p.vocabulary, inverse, shared), inverse);
    Choice best[kMostTop];
    find(block, p, logits, best, shared);
    uint64_t before[kMostTop] = {};
    for (int64_t i = block.thread(); i < p.vocabulary; i += kLogitsThreads) {
      const uint64_t share = share_of(logits[i], inverse, lse);
      TLT_UNROLL_LOOP
      for (int k = 0; k < kMostTop; ++k) before[k] += i < best[k].token ? share : 0;
    }
    TLT_UNROLL_LOOP
    for (int k = 0; k < kMostTop; ++k) {
      if (k >= p.k) return;
      before[k] =
          reduce(block, shared.shares, before[k], [](uint64_t a, uint64_t b) { return a + b; });
      if (block.thread() > 0) continue;
      p.top[block.index() * p.k + k] = {best[k].token == kNoToken ? -1 : best[k].token,
                                        expf(best[k].logit * inverse - lse), before[k]};
    }
  }

 private:
  static TLT_DEVICE void find(const Block& block, const Parameters& p, const float* logits,
                              Choice (&best)[kMostTop], Shared& shared) {
    Choice own[kMostTop];
    for (Choice& one : own) one = {-INFINITY, kNoToken};
    for (int64_t i = block.thread(); i < p.vocabulary; i += kLogitsThreads)
      insert(own, {logits[i], static_cast<int32_t>(i)});
    TLT_UNROLL_LOOP
    for (int k = 0; k < kMostTop; ++k) {
      best[k] = {-INFINITY, kNoToken};
      if (k >= p.k) continue;
      best[k] = reduce(block, shared.choices, own[0], Better());
      if (best[k].token != own[0].token) continue;
      TLT_UNROLL_LOOP
      for (int i = 0; i + 1 < kMostTop; ++i) own[i] = own[i + 1];
      own[kMostTop - 1] = {-INFINITY, kNoToken};
    }
  }

  // Ids come in rising order, so of equal logits the first stays ahead.
  static TLT_DEVICE void insert(Choice (&own)[kMostTop], Choice more) {
    if (!(more.logit > own[kMostTop - 1].logit)) return;
    TLT_UNROLL_LOOP
    for (int i = 0; i < kMostTop; ++i) {
      const bool is_ahead = more.logit > own[i].logit;
      const Choice next = is_ahead ? own[i] : more;
      own[i] = is_ahead ? more : own[i];
      more = next;
    }
  }
};

// d/d logit_j = 1/T (d_logprob ([j = target] - p_j) - d_entropy p_j (log p_j + entropy)).
struct LogitsBackward {
  using Parameters = LogitsGradient;
  using Shared = NoShared;
  static constexpr int kThreads = kLogitsThreads;
  static constexpr int64_t kSpan = kLogitsThreads * 4;  // columns of a block
  static int64_t blocks(const Parameters& p) { return p.rows * divide_up(p.columns, kSpan); }

  static TLT_DEVICE void run(const Block& block, const Parameters& p, Shared&) {
    const int spans = static_cast<int>(divide_up(p.columns, kSpan));
    const int64_t row = block.index() / spans, first = block.index() % spans * kSpan;
    const int64_t end = first + kSpan < p.columns ? first + kSpan : p.columns;
    for (int64_t i = first + block.thread(); i < end; i += kLogitsThreads)
      p.logits[row * p.stride + i] = gradient(p, row, i);
  }

 private:
  static TLT_DEVICE float gradient(const Parameters& p, int64_t row, int64_t column) {
    if (column >= p.vocabulary) return 0;
    const float d_logprob = p.d_logprobs[row], d_entropy = p.d_entropies[row];
    const float log_p = p.logits[row * p.stride + column] * p.inverse_temperature - p.lse[row];
    const float probability = expf(log_p);
    float d = -d_logprob * probability;
    if (d_entropy != 0 && probability > 0)
      d -= d_entropy * probability * (log_p + p.entropies[row]);
    d = d * p.inverse_temperature;
    return column == p.targets[row] ? d + d_logprob * p.inverse_temperature : d;
  }
};

}  // namespace tlt::ops::cuda

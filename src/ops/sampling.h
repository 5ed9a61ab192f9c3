// From logits to tokens, logprobs and entropies, row by row. Engine and trainer share this
// arithmetic, so the rollout logprob of a token and the trainer's are bit-identical, and so are the
// entropies.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "ops/sampling_rule.h"
#include "runtime/device.h"

namespace tlt::ops {

struct Sampled {
  int32_t token = 0;
  float logprob = 0;  // of the temperature-scaled distribution
  float entropy = 0;  // of that distribution, in nats; 0 in a list of the most likely tokens
};

// FastRL's acceptance rule (docs/paper_map.md, note 8), for comparison: takes the first of the
// draft tokens at which the cumulative probability reaches the uniform, or whose own probability
// reaches threshold_single; if none does, samples one of the other tokens. With both thresholds 1 a
// token is sampled with its probability; below 1, draft tokens are taken more often.
struct TargetOnlyRule {
  double threshold_single = 1;
  double threshold_acc = 1;
};

// A token to sample: the row of the logits, the rule, and the uniform in [0, 1).
struct SampleRow {
  int64_t row = 0;
  SamplingRule rule;
  double uniform = 0;
  // Samples only ids below `tokens`, with the others' probability redistributed; logprobs are of
  // the whole distribution. 0: all ids.
  int64_t tokens = 0;
  // When set, receives the `top_count` most likely ids that may be sampled, most likely first, with
  // their logprobs, whatever is truncated.
  std::vector<Sampled>* top = nullptr;
  int64_t top_count = 0;
  // With a TargetOnlyRule: the draft tokens, without repetition, and the uniform for the other
  // tokens.
  const TargetOnlyRule* target_only = nullptr;
  std::span<const int32_t> draft_tokens = {};
  double rest_uniform = 0;
};

struct RowsToSample {
  const at::Tensor& logits;  // [R, >= vocabulary] float32
  int64_t vocabulary;
  std::span<const SampleRow> rows;
  // Gets the copy of the logits on the host, if a rule needs one, and keeps it for other rows of
  // the same logits. Undefined at first.
  at::Tensor* host = nullptr;
};
// sampled[i] = the token of rows[i], an id below `vocabulary` (logits may have more columns).
void sample_rows(const Device& device, const RowsToSample& rows, std::span<Sampled> sampled);
inline void sample_rows(const Device& device, const at::Tensor& logits, int64_t vocabulary,
                        std::span<const SampleRow> rows, std::span<Sampled> sampled) {
  sample_rows(device, {logits, vocabulary, rows}, sampled);
}

// The same in two parts, so that several passes over the logits wait for the device once. Only where
// samples_on_device(): it has kernels, and they cover the rules of these rows.
bool samples_on_device(const Device& device, std::span<const SampleRow> rows);
// sampled [rows, kSampledWords] int32 on the device: what read_sampled() reads. Does not wait.
constexpr int64_t kSampledWords = sizeof(Sampled) / sizeof(int32_t);
void launch_sample_rows(const Device& device, const RowsToSample& rows, const at::Tensor& sampled);
void read_sampled(const at::Tensor& on_device, std::span<Sampled> sampled);

// One of the most likely tokens of a row.
struct TopToken {
  int32_t token = 0;      // -1: no further logit is finite
  float probability = 0;  // of softmax(logits / temperature)
  double before = 0;      // of all ids below the token
};
struct RowsToSearch {
  const at::Tensor& logits;  // [R, V] float32
  int64_t count;
  std::span<const float> inverse_temperatures;  // [R]
};
// The `count` most likely tokens of each row, most likely first, of equals the lowest id first:
// [R, count]. Only where finds_top_tokens(): the device has a kernel for this count.
bool finds_top_tokens(const Device& device, int64_t count);
void find_top_tokens(const Device& device, const RowsToSearch& rows, std::vector<TopToken>& top);

// The trainer's statistics of each row: log p(target) and the entropy of softmax(logits /
// temperature).
struct RowStatistics {  // on the host
  at::Tensor logprob;   // [R] float32
  at::Tensor lse;       // [R] float32: log-sum-exp of logits / temperature
  at::Tensor entropy;   // [R] float32, in nats
  // The three on the device, [3, R], where its own kernels computed them.
  at::Tensor on_device = {};
};
struct TargetRows {
  at::Tensor& logits;  // [R, >= vocabulary] float32
  int64_t vocabulary;
  const at::Tensor& targets;  // [R] int32
  double temperature;
};
void row_statistics(const Device& device, const TargetRows& rows, RowStatistics& out);

// logits -> gradient of (sum_i d_logprob[i] log p(target_i) + d_entropy[i] entropy_i) with respect
// to the logits, in place. d_logprob, d_entropy [R] float32 on the host, as the statistics are.
// Columns >= `vocabulary` become 0.
void logits_backward(const Device& device, const TargetRows& rows, const RowStatistics& statistics,
                     const at::Tensor& d_logprob, const at::Tensor& d_entropy);

}  // namespace tlt::ops

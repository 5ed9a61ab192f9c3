// From logits to tokens and logprobs, a row at a time: engine and trainer share this arithmetic, so
// the logprob recorded with a token is the trainer's own, to the bit.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "ops/sampling_rule.h"
#include "runtime/device.h"

namespace tlt::ops {

struct Sampled {
  int32_t token = 0;
  float logprob = 0;            // of the temperature-scaled distribution
  float truncated_logprob = 0;  // of the truncated one; equal to logprob when nothing is truncated
};

// FastRL's way to accept guesses (docs/paper_map.md, note 8), for comparison: of the guesses in
// their order the first one up to which the summed probability reaches the number, or whose own
// probability reaches threshold_single; where none does, a token of the rest. With both thresholds
// 1 a token is chosen as often as by its probability; below 1, guesses are taken more often.
struct TargetOnlyRule {
  double threshold_single = 1;
  double threshold_acc = 1;
};

// A token to be chosen: from which row of the logits, how, and with which number in [0, 1).
struct SampleRow {
  int64_t row = 0;
  SamplingRule rule;
  double uniform = 0;
  // Only ids below are chosen, the others' share going to those; logprobs are of all. 0: all are.
  int64_t tokens = 0;
  // With a TargetOnlyRule: the guesses, without repetition, and the number for the rest.
  const TargetOnlyRule* target_only = nullptr;
  std::span<const int32_t> guesses = {};
  double rest_uniform = 0;
};

// sampled[i] = the token of rows[i], an id below `vocabulary` (logits may have more columns).
// logits [R, >= vocabulary] float32.
void sample_rows(const Device& device, const at::Tensor& logits, int64_t vocabulary,
                 std::span<const SampleRow> rows, std::span<Sampled> sampled);

// What the trainer needs of each row: log p(target) and the entropy of softmax(logits /
// temperature).
struct RowStatistics {
  at::Tensor logprob;  // [R] float32
  at::Tensor lse;      // [R] float32: log-sum-exp of logits / temperature
  at::Tensor entropy;  // [R] float32, in nats
};
// targets [R] int32.
void row_statistics(const Device& device, const at::Tensor& logits, int64_t vocabulary,
                    const at::Tensor& targets, double temperature, RowStatistics& out);

// logits -> gradient of (sum_i d_logprob[i] log p(target_i) + d_entropy[i] entropy_i) with respect
// to the logits, in place. d_logprob, d_entropy [R] float32. Columns from `vocabulary` on become 0.
void logits_backward(const Device& device, at::Tensor& logits, int64_t vocabulary,
                     const at::Tensor& targets, double temperature, const RowStatistics& rows,
                     const at::Tensor& d_logprob, const at::Tensor& d_entropy);

}  // namespace tlt::ops

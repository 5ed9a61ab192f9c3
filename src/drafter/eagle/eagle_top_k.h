// The most probable next tokens of rows of logits, which draft tree nodes are expanded into.
//
// A long row is processed in parts, by several threads and while it is in the fastest cache: a
// vocabulary of 152,000 has 600 KB of logits.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafter/shared_uniforms.h"
#include "ops/sampling.h"
#include "runtime/device.h"

namespace tlt::drafter {

// The tokens.size() most likely tokens of a row, most likely first (of equals the lowest id), and
// their probabilities under softmax at the rule's temperature. All tokens are different, even when
// logits are NaN.
struct TopK {
  std::span<int32_t> tokens;
  std::span<float> probabilities;
  // With uniforms: the probabilities are those of being sampled with the first uniform, and the
  // tokens are the most likely by these among the max(tokens.size(), kConsidered) largest logits.
  SharedUniforms draws = {};

  static constexpr size_t kConsidered = 8;
};

float inverse_temperature_of(const TopK& top);

// Owns       scratch.
// Threading  engine thread only; uses the device's.
class TopKSoftmax {
 public:
  // Fills top[i] from row i of the logits [rows, columns].
  // REQUIRES: 1 <= tokens.size() == probabilities.size() <= columns for all of them.
  void choose(const Device& device, std::span<const float> logits, std::span<const TopK> top);
  // Where a device found the most likely tokens: most_of(top, columns) for each row, in its order.
  void choose(std::span<const ops::TopToken> found, std::span<const TopK> top);
  // The largest number of tokens to find in a row.
  static int64_t most_of(std::span<const TopK> top, int64_t columns);

 private:
  struct Part {
    float top, sum;  // largest logit; sum of e^((logit - top) / temperature)
  };

  void find(std::span<const float> part, int32_t first_id, float inverse_temperature, size_t task);
  void merge(std::span<const float> logits, int64_t row, const TopK& top);
  // Writes the best of considered_.
  void write(const TopK& top);
  // Sets `before` of each of considered_: the probability of all tokens before it in the row.
  void add_up(std::span<const float> logits, std::span<const Part> parts, float log_sum,
              float inverse_temperature);

  int64_t parts_ = 0;  // per row
  size_t most_ = 0;    // largest number of tokens to find in a row
  // [row, part] and [row, part, most_].
  std::vector<Part> parts_of_rows_;
  std::vector<int32_t> ids_;
  std::vector<float> values_;
  // Scratch for one row.
  std::vector<int32_t> largest_ids_;
  std::vector<float> largest_;
  std::vector<Considered> considered_;
};

}  // namespace tlt::drafter

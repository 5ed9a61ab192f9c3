// The most probable next tokens of rows of logits: what draft trees' nodes are expanded into.
//
// A long row is worked on in parts, by several threads and while it is in the fastest cache: a
// vocabulary of 152,000 is 600 KB of logits.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/device.h"

namespace tlt::spec {

// The tokens.size() largest logits of a row, largest first (of equals the lowest id), and their
// probabilities under softmax. All tokens are different, even when logits are not numbers.
struct TopK {
  std::span<int32_t> tokens;
  std::span<float> probabilities;
};

// Owns       scratch.
// Threading  engine thread only; uses the device's.
class TopKSoftmax {
 public:
  // top[i] of row i of the logits [rows, columns].
  // REQUIRES: 1 <= tokens.size() == probabilities.size() <= columns for all of them.
  void choose(const Device& device, std::span<const float> logits, std::span<const TopK> top);

 private:
  void find(std::span<const float> part, int32_t first_id, size_t task);
  void merge(int64_t row, const TopK& top);

  int64_t parts_ = 0;  // of a row
  size_t most_ = 0;    // tokens of a row
  struct Part {
    float top, sum;  // of e^(logit - top)
  };
  // [row, part] and [row, part, most_].
  std::vector<Part> parts_of_rows_;
  std::vector<int32_t> ids_;
  std::vector<float> values_;
};

}  // namespace tlt::spec

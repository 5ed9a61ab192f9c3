// EagleHead: the LM head of an EAGLE draft model: the network's own, or the target's rows for the
// most frequent tokens (draft vocabulary). The target verifies with its full LM head, so a token
// outside the draft vocabulary costs acceptance and does not change results.
//
// Owns       a copy of those rows; the draft model's folder lists them
//            (drafter/files/draft_hot_tokens.h).
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "drafter/eagle/draft_activations.h"
#include "drafter/eagle/draft_network.h"

namespace tlt::drafter {

class EagleHead {
 public:
  // tokens: size of the draft vocabulary, 0: all. A network with an LM head of its own ignores it.
  // InputError when the most frequent tokens are not known. REQUIRES: `network` outlives this.
  EagleHead(const drafter::DraftNetwork& network, int64_t tokens);

  int64_t rows() const { return tokens_.empty() ? network_.head_rows() : std::ssize(tokens_); }
  int32_t token_of(int64_t row) const {
    return tokens_.empty() ? network_.token_of(row) : tokens_[static_cast<size_t>(row)];
  }
  // out [n, R] float32, from next [n, D].
  void logits(const at::Tensor& next, drafter::DraftActivations& activations,
              at::Tensor& out) const;

  // The target's weights have changed.
  void refresh();
  int64_t memory_bytes() const;

 private:
  const drafter::DraftNetwork& network_;
  std::vector<int32_t> tokens_;  // [R], ascending; empty: the network's own LM head
  ops::Weight rows_;             // [R, D]
};

}  // namespace tlt::drafter

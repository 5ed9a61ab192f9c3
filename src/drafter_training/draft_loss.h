// DraftLoss: the training loss of a draft model and its gradient, derived by hand, in float32.
//
//   loss = hidden_weight * SmoothL1(h', h) + logits_weight * CE(softmax(W h), softmax(W h'))
//
// h' is the draft model's state, h the target's at the same position, W the target's LM head
// (EAGLE). The first term is a mean over D. Both are summed over the rows that count and divided by
// the number of such rows in the whole step, over all packs and workers: padding and packing do not
// affect the loss.
//
// An EAGLE-3 draft model has an LM head of its own over R tokens, and its states do not approximate
// the target's (EAGLE-3): the loss is the cross-entropy alone, against the target's softmax over
// those tokens, in rows where the target's best token is one of them. Other rows have loss 0 and
// count as rejected.
//
// The LM head runs over a bounded number of rows at a time: [T, V] is never allocated.
//
// Borrows    the network and its target, whose LM head is read and never changed.
// Threading  engine thread only; uses the device's pool. The result is the same, bit for bit, for
//            any number of threads and any chunk size.
//
//   DraftLoss loss(network, {.hidden = 1.0, .logits = 0.1});
//   DraftSums sums;
//   const at::Tensor& d = loss.backward(predicted, wanted, {rows, 1.0 / counted}, gradients, sums);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "drafter/eagle/draft_network.h"

namespace tlt::drafter_training {

struct DraftLossWeights {
  double hidden = 1.0;
  double logits = 0.1;
};

// Sums over the rows that count. Add those of all packs and workers, then call metrics().
struct DraftSums {
  double rows = 0;
  double hidden = 0;            // SmoothL1
  double logits = 0;            // cross-entropy, in nats
  std::array<double, 3> top{};  // target's best token is among the draft's top 1, 2, 3
  double acceptance = 0;        // target's probability of the draft's best token

  std::vector<double> values() const;
  static DraftSums of(std::span<const double> values);
  // (name, mean over rows): "drafter/loss", "drafter/top1_accuracy" … REQUIRES: rows > 0.
  std::vector<std::pair<std::string, double>> metrics(const DraftLossWeights& weights,
                                                      const std::string& prefix) const;
};

// Rows of a pass: the inputs of the draft model's LM head and the target's final states at the same
// positions, both [T, D] in the compute type, and the rows that count.
struct DraftRows {
  const at::Tensor& read;
  const at::Tensor& wanted;
  std::span<const int64_t> rows;
};

class DraftLoss {
 public:
  // REQUIRES: `network` outlives this. `logits_bytes` bounds one of the two tensors of logits.
  DraftLoss(const drafter::DraftNetwork& network, const DraftLossWeights& weights,
            int64_t logits_bytes = int64_t{1} << 25);

  // The weights as given; for EAGLE-3 the cross-entropy's alone.
  const DraftLossWeights& weights() const { return weights_; }

  // Adds the losses of the rows.
  void measure(const DraftRows& rows, DraftSums& sums);

  // Adds the losses of the rows, and computes the gradient of scale * (sum of the rows' losses).
  // The gradient with respect to `read` is returned: [T, D] in the compute type, zero for other
  // rows, valid until the next call. The one of the draft model's own head is added to `gradients`.
  const at::Tensor& backward(const DraftRows& rows, double scale, model::Gradients& gradients,
                             DraftSums& sums);

 private:
  // Rows that go through the LM head together.
  struct Chunk {
    at::Tensor rows;    // [n] int64
    at::Tensor read;    // [n, D]
    at::Tensor logits;  // [n, R] of the draft model; with a scale their gradient
    at::Tensor slopes;  // [n, D] float32: of SmoothL1; undefined if states are not compared
  };
  // `scale`: of the gradient that replaces Chunk::logits; 0: no gradient.
  Chunk forward(const DraftRows& rows, double scale, DraftSums& sums);
  // Calls body(rows) for pieces that fit into the buffers.
  template <class Body>
  void for_chunks(const DraftRows& rows, const Body& body) const;
  at::Tensor buffer(at::Tensor& memory, int64_t rows, int64_t columns) const;

  const drafter::DraftNetwork& network_;
  const bool compares_states_;
  const DraftLossWeights weights_;
  const int64_t rows_per_chunk_;
  at::Tensor head_tokens_;       // [R] int64; undefined: the head has all tokens
  at::Tensor row_of_token_;      // [V] int64, -1: the head does not have the token
  at::Tensor drafted_, wanted_;  // [rows_per_chunk_, R or V] float32
  at::Tensor gradient_;          // [T, D]
};

}  // namespace tlt::drafter_training

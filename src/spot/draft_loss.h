// DraftLoss: what a drafter's states are worth, and the gradient of that, by hand, in float32.
//
//   loss = hidden_weight * SmoothL1(h', h) + logits_weight * CE(softmax(W h), softmax(W h'))
//
// h' is the drafter's state, h the target's at the same place, W the target's head (EAGLE). The
// first is a mean over D. Both are summed over the rows that count and divided by the number of
// such rows in the whole step, over all packs and workers: padding and packing have no part in it.
//
// An EAGLE-3 drafter has a head of its own over R tokens, and its states stand for nothing of the
// target's (EAGLE-3): the loss is the cross-entropy alone, against the target's softmax over
// those tokens, in rows where the target's best token is one of them. Other rows cost nothing and
// count as wrong.
//
// The head runs over a bounded number of rows at a time: [T, V] never exists.
//
// Borrows    the network and its target, whose head is read and never changed.
// Threading  engine thread only; uses the device's pool. The same bits for any number of threads
//            and any size of chunk.
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

#include "model/draft_network.h"

namespace tlt::spot {

struct DraftLossWeights {
  double hidden = 1.0;
  double logits = 0.1;
};

// Sums over rows that count. Add those of all packs and workers, then read metrics().
struct DraftSums {
  double rows = 0;
  double hidden = 0;            // SmoothL1
  double logits = 0;            // cross-entropy, in nats
  std::array<double, 3> top{};  // the target's best token is among the drafter's best 1, 2, 3
  double acceptance = 0;        // the target's probability of the drafter's best token

  std::vector<double> values() const;
  static DraftSums of(std::span<const double> values);
  // (name, mean over rows): "drafter/loss", "drafter/top1_accuracy" … REQUIRES: rows > 0.
  std::vector<std::pair<std::string, double>> metrics(const DraftLossWeights& weights,
                                                      const std::string& prefix) const;
};

// Rows of a pass: what the drafter's head reads and the target's final states at the same places,
// both [T, D] in the compute type, and which of them count.
struct DraftRows {
  const at::Tensor& read;
  const at::Tensor& wanted;
  std::span<const int64_t> rows;
};

class DraftLoss {
 public:
  // REQUIRES: `network` outlives this. `logits_bytes` bounds one of the two tensors of logits.
  DraftLoss(const model::DraftNetwork& network, const DraftLossWeights& weights,
            int64_t logits_bytes = int64_t{1} << 25);

  // As given; of EAGLE-3 the cross-entropy alone.
  const DraftLossWeights& weights() const { return weights_; }

  // Adds the losses of the rows.
  void measure(const DraftRows& rows, DraftSums& sums);

  // The same, and the gradient of scale * (sum over rows of the loss): with respect to `read` it is
  // returned, [T, D] in the compute type, zero for other rows, valid until the next call; that of
  // the drafter's own head is added to `gradients`.
  const at::Tensor& backward(const DraftRows& rows, double scale, model::Gradients& gradients,
                             DraftSums& sums);

 private:
  // Rows that go through the head together.
  struct Chunk {
    at::Tensor rows;    // [n] int64
    at::Tensor read;    // [n, D]
    at::Tensor logits;  // [n, R] of the drafter; with a scale their gradient
    at::Tensor slopes;  // [n, D] float32: of SmoothL1; undefined where states are not compared
  };
  // `scale`: of the gradient left in Chunk::logits; 0: no gradient is wanted.
  Chunk forward(const DraftRows& rows, double scale, DraftSums& sums);
  // body(rows) for pieces that fit into the buffers.
  template <class Body>
  void for_chunks(const DraftRows& rows, const Body& body) const;
  at::Tensor buffer(at::Tensor& memory, int64_t rows, int64_t columns) const;

  const model::DraftNetwork& network_;
  const bool compares_states_;
  const DraftLossWeights weights_;
  const int64_t rows_per_chunk_;
  at::Tensor head_tokens_;       // [R] int64; undefined: the head has all tokens
  at::Tensor row_of_token_;      // [V] int64, -1 where the head has none
  at::Tensor drafted_, wanted_;  // [rows_per_chunk_, R or V] float32
  at::Tensor gradient_;          // [T, D]
};

}  // namespace tlt::spot

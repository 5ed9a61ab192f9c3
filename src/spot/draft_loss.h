// DraftLoss: what a drafter's states are worth, and the gradient of that, by hand, in float32.
//
//   loss = hidden_weight * SmoothL1(h', h) + logits_weight * CE(softmax(W h), softmax(W h'))
//
// h' is the drafter's state, h the target's at the same place, W the target's head (PAPER 2.4). The
// first is a mean over D. Both are summed over the rows that count and divided by the number of
// such rows in the whole step, over all packs and workers: padding and packing have no part in it.
//
// The head runs over a bounded number of rows at a time: [T, V] never exists.
//
// Borrows    the target, whose head is read and never changed.
// Threading  engine thread only; uses the device's pool. The same bits for any number of threads
//            and any size of chunk.
//
//   DraftLoss loss(target, {.hidden = 1.0, .logits = 0.1});
//   DraftSums sums;
//   const at::Tensor& d = loss.backward(predicted, wanted, rows, counted_in_step, sums);   // [T,
//   D]
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

#include "model/policy_model.h"

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

class DraftLoss {
 public:
  // REQUIRES: `target` outlives this. `logits_bytes` bounds one of the two tensors of logits.
  DraftLoss(const model::PolicyModel& target, const DraftLossWeights& weights,
            int64_t logits_bytes = int64_t{1} << 25);

  // Adds the losses of `rows` of predicted and wanted, both [T, D] in the compute type.
  void measure(const at::Tensor& predicted, const at::Tensor& wanted, std::span<const int64_t> rows,
               DraftSums& sums);

  // The same, and the gradient of (sum over rows of the loss) / counted_in_step with respect to
  // `predicted`: [T, D] in the compute type, zero for other rows; valid until the next call.
  const at::Tensor& backward(const at::Tensor& predicted, const at::Tensor& wanted,
                             std::span<const int64_t> rows, int64_t counted_in_step,
                             DraftSums& sums);

 private:
  // Rows that go through the head together.
  struct Chunk {
    at::Tensor rows;    // [R] int64
    at::Tensor logits;  // [R, V] of the drafter; with a scale their gradient
    at::Tensor slopes;  // [R, D] float32: of SmoothL1
  };
  // `scale`: of the gradient left in Chunk::logits; 0: no gradient is wanted.
  Chunk forward(const at::Tensor& predicted, const at::Tensor& wanted,
                std::span<const int64_t> rows, double scale, DraftSums& sums);
  at::Tensor buffer(at::Tensor& memory, int64_t rows) const;

  const model::PolicyModel& target_;
  const DraftLossWeights weights_;
  const int64_t rows_per_chunk_;
  at::Tensor drafted_, wanted_;  // [rows_per_chunk_, V] float32
  at::Tensor gradient_;          // [T, D]
};

}  // namespace tlt::spot

// PolicyShard: one rank's part of a policy model in a tensor parallel group: its heads with their KV
// heads, its part of the feed-forward's inner size and of the vocabulary.
//
// Embedding, norms and the residual stream are whole on every rank, and all ranks have the same
// bits of them.
//
// Owns       copies of the rank's weights.
// Borrows    the model, which is whole on every rank (the trainer updates it), and the ranks.
// Threading  engine thread only. All ranks call forward() with the same batch.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "model/policy_model.h"
#include "model/tensor_parallel.h"

namespace tlt::model {

class PolicyShard {
 public:
  PolicyShard(const PolicyModel& model, TensorParallelRanks& ranks);

  const PolicyModel& model() const { return model_; }
  // Copies the weights again after the model's have changed.
  void new_weights();

  // Of this rank's KV cache.
  kv::KvShape kv_shape() const;

  // As PolicyModel::forward(); the same bits on every rank. `cache` is of kv_shape().
  const at::Tensor& forward(const ops::Batch& batch, kv::KvCache& cache,
                            Activations& activations) const;
  // As PolicyModel::logits(), with the same bits, on every rank. hidden: the same on all of them.
  void logits(const at::Tensor& hidden, at::Tensor& out);

 private:
  const PolicyModel& model_;
  TensorParallelRanks& ranks_;
  std::vector<DecoderLayer> layers_;
  ops::Weight head_;  // rows of the LM head; the last ranks may have padding
  RowBuffer logits_;  // [S R, rows of head_] float32
};

}  // namespace tlt::model

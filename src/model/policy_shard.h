// PolicyShard: one rank's part of a policy model in a tensor parallel group: its heads with their KV
// heads, its part of the feed-forward's inner size and of the vocabulary. Decoding and training use
// the same part.
//
// Embedding, norms and the residual stream are whole on every rank, and all ranks have the same
// bits of them.
//
// Owns       copies of the rank's weights.
// Borrows    the model, which is whole on every rank, and the ranks.
// Threading  engine thread only. All ranks call the functions of part(), and those that exchange
//            tensors, together.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/policy_model.h"
#include "model/tensor_parallel.h"

namespace tlt::model {

class PolicyShard {
 public:
  PolicyShard(const PolicyModel& model, TensorParallelRanks& ranks);

  const PolicyModel& model() const { return model_; }
  // What this rank computes, and trains. forward() and logits() have the bits of the whole model on
  // every rank; kv_shape() is that of the rank's KV cache.
  const PolicyModel& part() const { return part_; }
  int64_t rank() const { return ranks_.rank(); }

  // Copies the weights again after the model's have changed.
  void new_weights() { part_.copy_part(); }

  // --- training ---

  // A tensor of the whole parameter's shape, by its index in parameters(), from each rank's tensor of
  // the part's shape. A copy, on every rank.
  at::Tensor gather(size_t parameter, const at::Tensor& mine) const;
  // This rank's part of such a tensor: a copy, with zeros as padding.
  at::Tensor part_of(size_t parameter, const at::Tensor& whole) const;
  // The parts have been trained: writes all of them into the model of each rank.
  void publish() const;

 private:
  // Which rows or columns of the parameter a rank has.
  enum class Cut { kNone, kRows, kColumns };
  Cut cut_of(size_t parameter) const;
  std::vector<int64_t> projections_of(size_t parameter) const;

  const PolicyModel& model_;
  TensorParallelRanks& ranks_;
  PolicyModel part_;
};

}  // namespace tlt::model

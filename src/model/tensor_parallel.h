// Tensor parallel: the heads, the inner size of the feed-forward and the vocabulary are divided among
// the ranks of a group (Megatron-LM, Shoeybi et al., arXiv:1909.08053).
//
// The outputs of attention and feed-forward are sums over slices, one for each rank. The slices are
// added in order of rank, in float32, and rounded once (ops::add_slices). This order belongs to the
// number of slices, not to who computes them: one worker that computes all slices gets the bits of
// a group. So the trainer's logprobs are those of a group's rollouts.
//
// Not here   how ranks exchange their slices (rollout/tensor_parallel_group.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "model/model_config.h"

namespace tlt::model {

// The ranks of a tensor parallel group, as the layers of one of them see it.
class TensorParallelRanks {
 public:
  virtual ~TensorParallelRanks() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  // parts [size, …], contiguous: part rank() is this rank's; fills in those of the others.
  virtual void all_gather(at::Tensor& parts) = 0;
};

// A sum over slices, and who computes them.
struct SlicedSum {
  int64_t slices = 1;
  TensorParallelRanks* ranks = nullptr;  // null: this worker computes all slices
};

// InputError unless `size` is 1, 2, 4 or 8.
void check_tensor_parallel_size(int64_t size, const std::string& option);
// InputError unless a model with this configuration can be divided; `model` names it.
void check_divisible(const ModelConfig& config, int64_t size, const std::string& option,
                     const std::string& model);
// The sizes of one rank's part.
ModelConfig shard_config(ModelConfig config, int64_t size);

}  // namespace tlt::model

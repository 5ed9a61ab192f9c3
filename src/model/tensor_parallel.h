// Tensor parallel: the heads, the inner size of the feed-forward and the vocabulary are divided among
// the ranks of a group (Megatron-LM, Shoeybi et al., arXiv:1909.08053).
//
// The outputs of attention and feed-forward are sums over slices, one for each rank, and so are the
// gradients of their inputs and of the LM head's. The slices are added in order of rank, in float32,
// and rounded once (ops::add_slices). This order belongs to the number of slices, not to who computes
// them: one worker that computes all slices gets the bits of a group, in training too.
//
// Not here   how ranks exchange their slices (rollout/tensor_parallel_group.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "ops/weight.h"

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

// Rows from … of a whole matrix or vector that are rows to … of a slice.
struct RowBlock {
  int64_t from = 0, count = 0, to = 0;
};
// The rows of one slice of fused projections, of which the whole has `projections` rows each: of each
// projection an equal share, rounded up. The last slices may have fewer rows of it, or none; the rest
// of their share is padding.
std::vector<RowBlock> rows_of_slice(std::span<const int64_t> projections, int64_t slices,
                                    int64_t slice);
// The number of rows of a slice, with its padding.
int64_t slice_rows(std::span<const int64_t> projections, int64_t slices);

// The gradient of what `weight` reads: dy W.
struct InputProduct {
  const at::Tensor& dy;                  // [T, N]
  const ops::Weight& weight;             // [N, K]: whole, or a rank's part
  std::span<const int64_t> projections;  // of the whole (rows_of_slice); a rank does not read them
};
// dx [T, K] = the sum over slices of the rows of W. parts [S, T, K] float32 receives the slices.
void backward_slices(const Device& device, const SlicedSum& sum, const InputProduct& product,
                     at::Tensor& parts, at::Tensor& dx);

// InputError unless `size` is 1, 2, 4 or 8.
void check_tensor_parallel_size(int64_t size, const std::string& option);
// InputError unless a model with this configuration can be divided; `model` names it.
void check_divisible(const ModelConfig& config, int64_t size, const std::string& option,
                     const std::string& model);
// The sizes of one rank's part.
ModelConfig shard_config(ModelConfig config, int64_t size);

}  // namespace tlt::model

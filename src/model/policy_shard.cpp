// SPDX-License-Identifier: Apache-2.0
#include "model/policy_shard.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tlt::model {

PolicyShard::PolicyShard(const PolicyModel& model, TensorParallelRanks& ranks)
    : model_(model), ranks_(ranks) {
  const ModelConfig& whole = model.config();
  const ModelConfig part = shard_config(whole, ranks.size());
  for (int64_t i = 0; i < whole.layers; ++i) {
    layers_.emplace_back(part, model.device(), model.type());
    layers_.back().set_sum({.slices = ranks.size(), .ranks = &ranks});
  }
  const int64_t rows = (whole.vocabulary + ranks.size() - 1) / ranks.size();
  head_ = ops::Weight(model.device(), rows, whole.hidden, model.type());
  new_weights();
}

void PolicyShard::new_weights() {
  const Device& device = model_.device();
  for (size_t i = 0; i < layers_.size(); ++i)
    layers_[i].assign_shard(device, model_.layers_[i], ranks_.rank());
  const int64_t first = ranks_.rank() * head_.rows();
  const int64_t rows = std::min(head_.rows(), model_.config().vocabulary - first);
  if (rows > 0) head_.assign(device, model_.head().values(device, first, rows));
}

kv::KvShape PolicyShard::kv_shape() const {
  kv::KvShape shape = model_.kv_shape();
  shape.kv_heads /= ranks_.size();
  return shape;
}

const at::Tensor& PolicyShard::forward(const ops::Batch& batch, kv::KvCache& cache,
                                       Activations& activations) const {
  return model_.forward_through(layers_, batch, cache, activations);
}

void PolicyShard::logits(const at::Tensor& hidden, at::Tensor& out) {
  const int64_t size = ranks_.size(), rows = hidden.size(0), columns = head_.rows();
  at::Tensor all =
      logits_.resize(model_.device(), size * rows, columns, at::kFloat).view({size, rows, columns});
  at::Tensor mine = all.select(0, ranks_.rank());
  ops::linear(model_.device(), hidden, head_, mine);
  ranks_.all_gather(all);
  for (int64_t rank = 0; rank < size; ++rank) {
    const int64_t first = rank * columns, count = std::min(columns, out.size(1) - first);
    if (count > 0) out.narrow(1, first, count).copy_(all.select(0, rank).narrow(1, 0, count));
  }
}

}  // namespace tlt::model

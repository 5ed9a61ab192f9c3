// SPDX-License-Identifier: Apache-2.0
#include "rollout/model_runner.h"

#include <ATen/ATen.h>

#include <optional>

#include "rollout/tensor_parallel_group.h"

namespace tlt::rollout {
namespace {

class WholeModelRunner final : public ModelRunner {
 public:
  WholeModelRunner(const model::PolicyModel& model, int64_t pages, int64_t max_rows)
      : ModelRunner(model, model.kv_shape(), pages, max_rows), model_(model) {}

  const at::Tensor& forward(const ops::Batch& batch) override {
    has_written_ = true;
    return model_.forward(batch, cache_, activations_);
  }
  void logits(const at::Tensor& hidden, at::Tensor& out) override { model_.logits(hidden, out); }

  void use_graphs() override {
    if (model_.device().is_cpu()) return;
    graphs_.emplace(model_.device());
    activations_.use(model_, *graphs_);
  }
  GraphStats graph_stats() const override { return graphs_ ? graphs_->stats() : GraphStats(); }

 private:
  const model::PolicyModel& model_;
  std::optional<GraphCache> graphs_;
};

}  // namespace

kv::KvShape TargetModel::kv_shape() const { return group ? group->kv_shape() : model.kv_shape(); }

std::unique_ptr<ModelRunner> TargetModel::make_runner(int64_t pages, int64_t max_rows) const {
  if (group) return group->make_runner(pages, max_rows);
  return std::make_unique<WholeModelRunner>(model, pages, max_rows);
}

}  // namespace tlt::rollout

// SPDX-License-Identifier: Apache-2.0
#include "rl/rollout_ranks.h"

#include "base/check.h"

namespace tlt::rl {
namespace {

std::unique_ptr<cluster::Comm> split(cluster::Comm& comm, int64_t size, int64_t color) {
  return size == 1 ? nullptr : comm.split(static_cast<int>(color));
}

}  // namespace

RolloutRanks::RolloutRanks(const run::RunOptions& options, const run::RunContext& context)
    : context_(context),
      size_(options.rollout.tensor_model_parallel_size),
      members_(split(*context.comm, size_, context.comm->rank() / size_)),
      replicas_(split(*context.comm, size_, context.comm->rank() % size_)),
      group_(members_ ? std::make_unique<rollout::TensorParallelGroup>(*context.model, *members_)
                      : nullptr) {}

train::GroupTraining RolloutRanks::training() const {
  TLT_CHECK(group_, "workers without a tensor parallel group");
  return {.shard = &group_->shard(), .members = members_.get(), .replicas = replicas_.get()};
}

int64_t RolloutRanks::engines() const { return context_.comm->size() / size_; }

std::string RolloutRanks::together(const std::function<std::string()>& body) {
  if (!group_) return body();
  if (!group_->leads()) return group_->follow();
  const std::string result = body();
  group_->release(result);
  return result;
}

void RolloutRanks::new_weights() {
  if (group_) group_->new_weights();
}

}  // namespace tlt::rl

// RolloutRanks: which workers roll out together. With rollout.tensor_model_parallel_size=S, workers
// S g … S g + S - 1 are tensor parallel group g: the first one leads, with an engine, and the others
// follow (rollout/tensor_parallel_group.h). Groups of consecutive workers are on one host where the
// launcher numbers workers host by host. In training all members of a group do the same, unless an
// option rules that out (RunOptions::trains_in_groups); then each worker is one by itself again.
//
// Owns       the communicators of the group and of the leaders, the group.
// Borrows    the run context.
// Threading  engine thread only. All workers call the same functions in the same order.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cluster/comm.h"
#include "rollout/tensor_parallel_group.h"
#include "run/run_context.h"
#include "run/run_options.h"
#include "train/trainer.h"

namespace tlt::rl {

class RolloutRanks {
 public:
  // All workers together.
  RolloutRanks(const run::RunOptions& options, const run::RunContext& context);

  // Whether this worker computes its part of another one's passes, and decodes nothing by itself.
  bool follows() const { return group_ && !group_->leads(); }
  // Whether any worker follows.
  bool has_followers() const { return group_ != nullptr; }
  // Workers that decode: one of each group.
  int64_t engines() const;
  // The policy of an engine. REQUIRES: not follows(), or only its kv_shape() is used.
  rollout::TargetModel target() const { return {*context_.model, group_.get()}; }
  // What the group trains with. REQUIRES: the run has groups; outlived by this.
  train::GroupTraining training() const;
  // Of the workers that decode. REQUIRES: not follows().
  cluster::Comm& leaders() const { return replicas_ ? *replicas_ : *context_.comm; }

  // Runs `body`, which uses the engine, on the workers that decode, while the others follow.
  // Returns its result, on followers that of their leader.
  std::string together(const std::function<std::string()>& body);

  // The policy has been updated.
  void new_weights();

 private:
  const run::RunContext& context_;
  const int64_t size_;                            // of a group
  const std::unique_ptr<cluster::Comm> members_;  // of this group; null: of one
  // Of the workers with this one's rank in their groups: on a leader, of the leaders; null: all lead.
  const std::unique_ptr<cluster::Comm> replicas_;
  const std::unique_ptr<rollout::TensorParallelGroup> group_;  // null: of one
};

}  // namespace tlt::rl

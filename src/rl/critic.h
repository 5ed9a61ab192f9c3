// Critic: the value model of algorithm.adv_estimator=gae in a run: its values of a step's responses,
// its update, its part of the checkpoints.
//
//   checkpoints/step_000010/critic/                     Hugging Face folder, with the value head
//   checkpoints/step_000010/state/critic.safetensors    master weights and moments, float32
//   checkpoints/step_000010/state/critic.json           optimizer steps, steps skipped in a row
//
// It is updated before the policy, from the same batch. If an interrupt abandons one of the two
// updates after a weight has changed, the checkpoint within the step has what continues them
// (unfinished_update.h).
//
// Owns       the value model, its trainer.
// Borrows    options and run context.
// Not here   values to advantages (advantages.h).
// Threading  engine thread only. All workers call the same functions in the same order.
//
//   critic.add_values(samples);
//   … advantages and returns …
//   train::TrainStats stats = critic.update(samples);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "run/run.h"
#include "run/run_context.h"
#include "run/run_options.h"
#include "train/checkpoint.h"
#include "train/trainer.h"
#include "train/value_model.h"

namespace tlt::rl {

class Critic {
 public:
  // `should_stop`: as in Trainer, and between two packs of add_values().
  Critic(const run::RunOptions& options, const run::RunContext& context, int64_t total_steps,
         std::function<bool()> should_stop);

  // Whether the step after `steps_done` steps trains the policy too (trainer.critic_warmup).
  bool trains_policy(int64_t steps_done) const;

  // Sets the values of all samples, unless a worker is interrupted.
  void add_values(std::span<train::TrainSample> samples);
  // `done`: as in Trainer::update().
  train::TrainStats update(std::span<const train::TrainSample> samples,
                           train::TrainStats done = {});
  const train::Optimizer& optimizer() const { return trainer_.optimizer(); }

  // Adds its state to a checkpoint, on rank 0, after gather() on all workers.
  void gather();
  void save(train::CheckpointParts& parts);
  void resume(const train::CheckpointPlace& checkpoint);

 private:
  const run::RunOptions& options_;
  const run::RunContext& context_;
  const std::unique_ptr<train::ValueModel> model_;
  const std::function<bool()> should_stop_;
  train::Trainer trainer_;
  std::vector<model::TensorSource> snapshot_;  // of gather()
};

}  // namespace tlt::rl

// UnfinishedStep: keeps the rollouts of a step that an interrupt ended, in the file unfinished_step
// of the run folder, and returns them when the resumed run is in that step.
//
// If some optimizer steps of the update were done, the rollouts are part of the checkpoint that has
// their weights (unfinished_update.h): the rest of the update needs these and no others.
//
// They fit only if everything that tokens and scores depend on is the same: options, weights, step
// and prompts, which a hash stands for. What does not fit, or is damaged, is skipped with a warning:
// it is only saved work. The file of a later step than that of the checkpoint waits for its step.
//
// Owns       the file, which rank 0 reads and writes; a packed copy of the step's rollouts (rank 0).
// Borrows    the run's options and context.
// Not here   decoding what is missing (rollout_phase.h).
// Threading  engine thread only. All workers call the same functions in the same order.
//
//   UnfinishedStep step(options, context, run_folder);
//   step.begin(/*steps_done=*/7);
//   rollouts = roll_out(prompts, plan, step.known(prompts, plan));   // each generation batch
//   step.add(prompts, plan, rollouts);
//   if (interrupted) step.save(); else step.finish();                // after the update
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "rl/rollout_phase.h"
#include "run/rollout.h"
#include "run/run_context.h"
#include "run/run_options.h"
#include "train/checkpoint.h"

namespace tlt::rl {

class UnfinishedStep {
 public:
  UnfinishedStep(const run::RunOptions& options, const run::RunContext& context,
                 const std::string& run_folder);

  // Begins the step after `steps_done` steps.
  void begin(int64_t steps_done);
  // The rollouts that exist of the next generation batch. Rank 0 logs how many.
  std::vector<run::Rollout> known(std::span<const data::Prompt> prompts, const SamplingPlan& plan);
  // The batch's rollouts, complete or not.
  void add(std::span<const data::Prompt> prompts, const SamplingPlan& plan,
           const std::vector<run::Rollout>& rollouts);
  bool has_rollouts() const { return has_rollouts_; }

  // Writes the step's rollouts. An error is a warning: the run is resumable without them.
  void save() const;
  // Writes them into a checkpoint, on rank 0, with the present weights. They are copied when it is
  // called, and written when the result is.
  std::function<void(const std::string& folder)> snapshot() const;
  // Reads those of the checkpoint that the run was resumed from. All workers. InputError: it has
  // none; later, in known(): they do not fit.
  void require(const train::CheckpointPlace& checkpoint);
  // The step is done: its rollouts are not needed any more.
  void finish();

 private:
  struct Batch {
    std::string prompts;   // their hash
    std::string rollouts;  // run::pack()
  };
  void read(const std::string& path);
  std::string packed() const;
  std::string hash_of_state() const;
  std::string try_known(std::span<const data::Prompt> prompts, const SamplingPlan& plan);

  const run::RunOptions& options_;
  const run::RunContext& context_;
  const std::string path_;
  int64_t kept_step_ = -1;   // steps done before the step in the file; -1: there is none
  std::string kept_state_;   // rank 0: of the file: hash_of_state()
  std::vector<Batch> kept_;  // the same
  int64_t steps_done_ = 0;
  size_t batch_ = 0;  // of the step, for known()
  bool has_rollouts_ = false;
  std::string required_;        // the folder of require(); empty: the rollouts may be missing
  std::vector<Batch> batches_;  // rank 0
};

}  // namespace tlt::rl

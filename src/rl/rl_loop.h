// RlLoop: runs RL training from the first step to the last. Start reading at run_step().
//
//   prompts -> rollout_worker.run (idle workers train the draft model) -> publish the draft model
//           -> rewards (already scored as responses finished) -> values of the critic, if there is
//           one -> advantages -> critic.update -> trainer.update
//           -> validate, save, report
//
// Every worker runs the same loop on its share: groups in the rollouts, packs in the update. After
// each phase all workers have the same data, so there is no controller, and one worker is not a
// special case.
//
// Owns       the run (run.h: folder, checkpoints, progress), model, rollout worker, trainer, and
//            their data.
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/timeline.h"
#include "cluster/launch.h"
#include "data/sampler.h"
#include "rl/critic.h"
#include "rl/early_gradients.h"
#include "rl/group_filter.h"
#include "rl/remote_teacher.h"
#include "rl/replay.h"
#include "rl/rollout_worker.h"
#include "rl/score_alarm.h"
#include "rl/step_report.h"
#include "rl/unfinished_step.h"
#include "rl/unfinished_update.h"
#include "run/join.h"
#include "run/policy_files.h"
#include "run/run.h"
#include "run/run_context.h"
#include "run/run_options.h"

namespace tlt::rl {

class RlLoop {
 public:
  RlLoop(const run::RunOptions& options, const cluster::Launch& launch);
  ~RlLoop();

  // Runs the remaining steps, or until a worker is interrupted. Its step then ends there: the
  // rollouts so far are kept (unfinished_step.h), and what the update has done (unfinished_update.h).
  // Returns the exit code.
  // Workers that wait to join (run/join.h) end it too, after a step.
  int run();
  // How the run continues then; nullopt: it has ended.
  const std::optional<run::NextLaunch>& next() const { return next_; }

 private:
  bool lets_join();
  void run_step();
  // nullopt: interrupted.
  std::optional<StepGroups> roll_out(StepReport& report);
  std::vector<train::TrainSample> make_samples(const StepGroups& groups, StepReport& report);
  void add_reference(std::vector<train::TrainSample>& samples);
  std::vector<std::vector<float>> reference_logprobs(std::span<const train::TrainSample> samples);
  void check_scored(std::span<const data::Prompt> prompts,
                    std::span<const run::Rollout> rollouts) const;
  void check_logprobs(const train::TrainStats& stats) const;
  bool try_update(const StepGroups& groups, std::span<const train::TrainSample> samples,
                  StepReport& report);
  bool try_update_policy(std::span<const train::TrainSample> samples, StepReport& report);
  void add_values(std::vector<train::TrainSample>& samples, StepReport& report);
  bool try_update_critic(const run::DumpedStep& batch, StepReport& report);
  void add_worker_metrics(StepReport& report);
  void write_rollouts(const StepGroups& groups, std::span<const train::TrainSample> samples);
  void validate(StepReport& report);
  void save_all();
  void save();
  void save_within_step();
  void gather();
  void resume();

  std::vector<data::Prompt> next_prompts();
  void check_generation_limit(const StepGroups& groups) const;
  SamplingPlan training_plan(int64_t gen_batch);

  // Alarm and summary of the run: rl_loop_report.cpp.
  void watch_scores(Metrics& metrics);
  void summarize_run();
  std::optional<Replay> replay_responses();

  const run::RunOptions options_;
  const std::shared_ptr<const reward::Reward> reward_;  // started before the model loads
  run::RunContext context_;
  data::Dataset prompts_;
  std::unique_ptr<data::Dataset> held_out_;
  data::Sampler sampler_;
  const int64_t total_steps_;
  const std::optional<GroupFilter> filter_;  // only with dynamic sampling
  // Only with KL in loss or reward, or as the teacher whose logprobs the advantages need.
  std::unique_ptr<model::PolicyModel> reference_;
  std::unique_ptr<RemoteTeacher> remote_teacher_;  // that teacher, if it is a server
  std::unique_ptr<model::PolicyModel> teacher_;    // only with an exact distillation.loss_mode
  RolloutWorker rollouts_;
  train::Trainer trainer_;
  std::unique_ptr<Critic> critic_;                 // only with adv_estimator=gae
  std::optional<EarlyGradients> early_gradients_;  // none where an option rules them out
  const run::PolicyFiles policy_files_;
  run::Run run_;  // after all members whose construction can fail
  std::optional<UnfinishedStep> unfinished_;
  UnfinishedUpdate update_;    // of the present step
  int64_t resumed_steps_ = 0;  // its optimizer steps that were done before the run was resumed
  std::unique_ptr<Timeline> timeline_;
  ScoreAlarm score_alarm_;  // rank 0
  std::optional<run::JoinRequests> joining_;
  std::optional<run::NextLaunch> next_;
  std::string teacher_fault_;  // why the teacher's server ends the run; the same on every worker
};

// `tlt train`: runs a worker of the run to its end, also when others join it. Returns the exit code.
int train(const run::RunOptions& options, const cluster::Launch& launch);
// `tlt train --join`: the same for a worker that joins a run.
int join(const run::RunOptions& options, const cluster::Launch& launch);

}  // namespace tlt::rl

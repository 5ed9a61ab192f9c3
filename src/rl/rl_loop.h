// RlLoop: runs RL training from the first step to the last. Start reading at run_step().
//
//   prompts -> rollout_phase.run (idle workers train the draft model) -> publish the draft model
//           -> rewards (already scored as responses finished) -> advantages -> trainer.update
//           -> validate, save, report
//
// Every worker runs the same loop on its share: groups in the rollouts, packs in the update. After
// each phase all workers have the same data, so there is no controller, and one worker is not a
// special case.
//
// Owns       the run (run.h: folder, checkpoints, progress), model, engine, trainer and their data.
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
#include "drafter_training/idle_trainer.h"
#include "rl/group_filter.h"
#include "rl/replay.h"
#include "rl/rollout_phase.h"
#include "rl/score_alarm.h"
#include "rl/speculation_report.h"
#include "run/policy_files.h"
#include "run/response_text.h"
#include "run/run.h"
#include "run/run_context.h"
#include "run/run_options.h"

namespace tlt::rl {

class RlLoop {
 public:
  RlLoop(const run::RunOptions& options, const cluster::Launch& launch);
  ~RlLoop();

  // Runs the remaining steps, or until the end of the step in which it is interrupted. Returns the
  // exit code.
  int run();

 private:
  void run_step();
  struct StepRollouts {
    StepGroups groups;
    PhaseTimes times;  // this worker's
  };
  train::TrainStats update(std::span<const train::TrainSample> samples);
  // nullopt: interrupted between two generation batches.
  std::optional<StepRollouts> roll_out();
  void check_generation_limit(const StepGroups& groups) const;
  void warn_unscored(std::span<const data::Prompt> prompts, std::span<const run::Rollout> rollouts);
  // Throws Error, which ends the run, if no rollout has a score.
  void check_scored(std::span<const data::Prompt> prompts,
                    std::span<const run::Rollout> rollouts) const;
  void resume();
  void validate(Metrics& metrics);
  void save();
  std::vector<data::Prompt> next_prompts();
  SamplingPlan training_plan(int64_t gen_batch) const;
  void add_reference(std::vector<train::TrainSample>& samples);
  std::vector<train::TrainSample> make_samples(std::span<const data::Prompt> prompts,
                                               std::span<const run::Rollout> rollouts) const;

  // Metrics and summary of the run: rl_loop_report.cpp.
  void report_times(const PhaseTimes& times, double step_seconds, Metrics& metrics);
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
  const std::optional<GroupFilter> filter_;        // only with dynamic sampling
  std::unique_ptr<model::PolicyModel> reference_;  // only with KL in loss or reward
  const run::ResponseText stop_string_;
  const std::shared_ptr<drafter::DraftNetwork> draft_network_;         // null: no `eagle` drafter
  const std::unique_ptr<drafter_training::IdleTrainer> idle_trainer_;  // null: not trained
  const std::unique_ptr<rollout::Speculation> speculation_;            // null: off
  rollout::Engine engine_;
  reward::RewardPool rewards_;
  std::unique_ptr<cluster::GroupSource> groups_;
  RolloutPhase phase_;
  train::Trainer trainer_;
  const run::PolicyFiles policy_files_;
  run::Run run_;  // after all members whose construction can fail
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<SpeculationReport> speculation_report_;
  ScoreAlarm score_alarm_;  // rank 0
  // Responses without a score since the start of this process; the count that warns next.
  int64_t unscored_ = 0, next_unscored_warning_ = 1;
};

// `tlt train`: runs a worker of the run to its end. Returns the exit code.
int train(const run::RunOptions& options, const cluster::Launch& launch);

}  // namespace tlt::rl

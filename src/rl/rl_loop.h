// RlLoop: the whole of a run. run_step() is the place to begin reading.
//
//   prompts -> rollout_phase.run (idle workers train the drafter) -> publish the drafter
//           -> rewards (already scored as responses finished) -> advantages -> trainer.update
//           -> validate, save, report
//
// Every worker runs the same loop on its share: groups of prompts in the rollouts, packs in the
// training. After each phase all know the same, so there is no controller, and one worker is not a
// special case.
//
// Owns       the run (run.h: folder, checkpoints, how far it is), and through its parts everything
//            else.
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
#include "rl/policy_files.h"
#include "rl/replay.h"
#include "rl/response_text.h"
#include "rl/rollout_phase.h"
#include "rl/run.h"
#include "rl/run_options.h"
#include "rl/score_alarm.h"
#include "rl/speculation_report.h"
#include "rl/spot_training.h"
#include "rl/workplace.h"

namespace tlt::rl {

class RlLoop {
 public:
  RlLoop(const RunOptions& options, const cluster::Launch& launch);
  ~RlLoop();

  // From where the run is to its end, or to the end of the step in which an interrupt came. Returns
  // the exit code.
  int run();

 private:
  void run_step();
  struct StepRollouts {
    StepGroups groups;
    PhaseTimes times;  // this worker's
  };
  train::TrainStats update(std::span<const train::TrainSample> samples);
  // nullopt: an interrupt came between two generation batches.
  std::optional<StepRollouts> roll_out();
  void check_cap(const StepGroups& groups) const;
  void tell_unscored(std::span<const data::Prompt> prompts, std::span<const Rollout> rollouts);
  // Ends the run where not one of the rollouts has a score.
  void check_scored(std::span<const data::Prompt> prompts, std::span<const Rollout> rollouts) const;
  void resume();
  void validate(Metrics& metrics);
  void save();
  std::vector<data::Prompt> next_prompts();
  SamplingPlan training_plan(int64_t gen_batch) const;
  void add_reference(std::vector<train::TrainSample>& samples);
  std::vector<train::TrainSample> make_samples(std::span<const data::Prompt> prompts,
                                               std::span<const Rollout> rollouts) const;

  // What the run says of itself: rl_loop_report.cpp.
  void report_times(const PhaseTimes& times, double step_seconds, Metrics& metrics);
  void watch_scores(Metrics& metrics);
  void summarize_run();
  std::optional<Replay> replay_some();

  const RunOptions options_;
  const std::shared_ptr<const reward::Reward> reward_;  // started before the model is loaded
  Workplace place_;
  data::Dataset prompts_;
  std::unique_ptr<data::Dataset> held_out_;
  data::Sampler sampler_;
  const int64_t total_steps_;
  const std::optional<GroupFilter> filter_;        // only with dynamic sampling
  std::unique_ptr<model::PolicyModel> reference_;  // only with a KL loss
  const ResponseText stop_text_;
  const std::shared_ptr<model::DraftNetwork> draft_network_;  // null: no EAGLE drafter
  const std::unique_ptr<SpotTraining> spot_;                  // null: it is not trained
  const std::unique_ptr<rollout::Speculation> speculation_;   // null: off
  rollout::Engine engine_;
  reward::RewardPool rewards_;
  std::unique_ptr<cluster::GroupSource> groups_;
  RolloutPhase phase_;
  train::Trainer trainer_;
  const PolicyFiles policy_files_;
  Run run_;  // after all that can fail
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<SpeculationReport> speculation_report_;
  ScoreAlarm score_alarm_;                       // rank 0
  int64_t unscored_ = 0, unscored_to_tell_ = 1;  // responses of this run, since it was started
};

// `tlt train`: runs a worker of the run to its end. Returns the exit code.
int train(const RunOptions& options, const cluster::Launch& launch);

}  // namespace tlt::rl

// RolloutWorker: the part of a run that turns prompts into scored responses, on this worker.
//
// Owns       engine, speculation, episodes of an environment, draft model and its idle training,
//            reward pool, group source; the tensor parallel group. A worker that follows in its
//            group (rollout_ranks.h) has an engine that is never used.
// Borrows    options, run context, timeline.
// Not here   which prompts, and what is learned from the responses (rl_loop.h).
// Threading  engine thread only. All workers call the same functions in the same order.
//
//   RolloutWorker worker(options, launch, context, {prompts, reward, most_responses});
//   worker.begin_step(step);
//   std::vector<run::Rollout> rollouts = worker.run(prompts, plan);   // of all workers
//   report.end_phase("gen");
//   worker.end_step(report);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/timeline.h"
#include "cluster/launch.h"
#include "data/dataset.h"
#include "drafter_training/idle_trainer.h"
#include "rl/replay.h"
#include "rl/rollout_phase.h"
#include "rl/rollout_ranks.h"
#include "rl/speculation_report.h"
#include "rl/step_report.h"
#include "run/response_text.h"
#include "run/run_context.h"
#include "run/run_options.h"
#include "train/checkpoint.h"

namespace tlt::rl {

class RolloutWorker {
 public:
  struct Work {
    const data::Dataset& prompts;  // of the run; a new draft model is made for their tokens
    std::shared_ptr<const reward::Reward> reward;
    int64_t most_responses;  // of one run(): as many sequences at most decode at the same time
  };
  RolloutWorker(const run::RunOptions& options, const cluster::Launch& launch,
                const run::RunContext& context, const Work& work);

  void set_timeline(Timeline* timeline);

  // Brackets the rollouts of step `step`, counted from 0. With a draft model in training,
  // end_step() trains it and puts it into use, and sets drafter/*, speculation/drafter_version and
  // timing_s/drafter.
  void begin_step(int64_t step);
  void end_step(StepReport& report);

  // Returns all workers' rollouts, ordered by prompt and sample. A failed reward does not end the
  // run: its rollout has no score. Warns whenever the number of those has doubled.
  // `known`, was_stopped(), is_interrupted(): as in RolloutPhase.
  std::vector<run::Rollout> run(std::span<const data::Prompt> prompts, const SamplingPlan& plan,
                                std::vector<run::Rollout> known = {});
  bool was_stopped() const { return was_stopped_; }
  bool is_interrupted() { return phase_.is_interrupted(); }

  // Sets the metrics of speculation and of the times of the step. REQUIRES: timing_s/gen and
  // rollout/tokens are set.
  void report_step(Metrics& metrics);

  // The policy has been updated.
  void new_weights();
  // Between the rollouts of a step and those of the next: frees what only rollouts need. All
  // workers together, as a leader tells its followers.
  void release_memory() {
    with_engine([this] { engine_.release_memory(); });
  }

  // Leaves the workers' group source; no rollouts after this. A worker that is lost later ends the
  // run.
  void disconnect();

  // Adds the state of speculation and draft model to a checkpoint, on rank 0, after gather() on all
  // workers.
  void gather();
  void save(train::CheckpointParts& parts);
  void resume(const train::CheckpointPlace& checkpoint);
  void write_drafter(const std::string& folder) const;

  // What the tensor parallel groups of the run train with. REQUIRES: it has some.
  train::GroupTraining group_training() const { return ranks_.training(); }

  bool speculates() const { return speculation_ != nullptr; }
  bool trains_drafter() const { return idle_trainer_ != nullptr; }
  // RolloutRanks::together(): `body` uses the engine outside of run().
  void with_engine(const std::function<void()>& body);
  // REQUIRES: speculates(); inside with_engine().
  ReplayEngines replay_engines(std::vector<rollout::Group> groups);

 private:
  double seconds_for_gap() const;
  void warn_unscored(std::span<const data::Prompt> prompts, std::span<const run::Rollout> rollouts);

  const run::RunOptions& options_;
  const run::RunContext& context_;
  const run::ResponseText response_text_;
  const rollout::EngineOptions engine_options_;  // of a worker that leads
  RolloutRanks ranks_;
  const std::shared_ptr<drafter::DraftNetwork> draft_network_;         // null: no `eagle` drafter
  const std::unique_ptr<drafter_training::IdleTrainer> idle_trainer_;  // null: not trained
  const std::unique_ptr<rollout::Speculation> speculation_;            // null: off
  std::optional<SpeculationReport> speculation_report_;
  rollout::Engine engine_;
  const std::unique_ptr<Episodes> episodes_;  // null: no environment
  reward::RewardPool rewards_;
  std::unique_ptr<cluster::GroupSource> groups_;
  RolloutPhase phase_;
  PhaseTimes times_;         // since begin_step()
  double tail_seconds_ = 0;  // the same
  bool was_stopped_ = false;
  // Responses without a score since the start of this process; the count that warns next.
  int64_t unscored_ = 0, next_unscored_warning_ = 1;
};

}  // namespace tlt::rl

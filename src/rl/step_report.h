// StepReport: collects the metrics of an RL step, under verl's names: the times of its phases and
// statistics of their results.
//
// Threading  engine thread only.
//
//   StepReport report;
//   … roll out …
//   report.end_phase("gen");                     // timing_s/gen
//   report.add_rollouts(prompts, rollouts, /*max_tokens=*/1024);
//   run.report(report.metrics());
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "data/dataset.h"
#include "reward/eval_statistics.h"
#include "rl/group_filter.h"
#include "run/rollout.h"
#include "train/trainer.h"

namespace tlt::rl {

class StepReport {
 public:
  // Sets timing_s/<phase>: seconds since the last end_phase(), or since construction.
  void end_phase(std::string_view phase);

  // Sets critic/score/*, response_length/*, prompt_length/* of the rollouts to train on.
  // `max_tokens`: the limit at which responses are truncated.
  void add_rollouts(std::span<const data::Prompt> prompts, std::span<const run::Rollout> rollouts,
                    int64_t max_tokens);

  // Sets rollout/* and reward/unscored of all rollouts of the step; with dynamic sampling also
  // their counts under verl's and slime's names: train/num_gen_batches, rollout/dynamic_filter/*.
  void add_generated(const Generated& generated, bool is_filtered);

  // Sets critic/rewards/* over samples and critic/advantages/* over tokens.
  void add_advantages(std::span<const double> rewards, std::span<const train::TrainSample> samples);

  // Sets critic/baseline/* and rollout/greedy_responses; nothing without greedy responses (ReMax).
  void add_baselines(std::span<const run::Rollout> baselines);

  // Sets critic/vf_*, critic/values/*, critic/returns/* and the like, after a critic's update.
  void add_critic(const train::TrainStats& stats, std::span<const train::TrainSample> samples);

  // Sets actor/* and training/rollout_probs_diff_*.
  void add_training(const train::TrainStats& stats);

  // Sets the statistics of each data source (reward/eval_statistics.h), without intervals, and
  // val-aux/* of all responses.
  void add_validation(std::span<const reward::PromptScores> prompts,
                      std::span<const run::Rollout> rollouts);

  double seconds() const { return step_.seconds(); }  // since construction
  Metrics& metrics() { return metrics_; }

 private:
  void set(std::string_view name, auto value) { metrics_.set(name, static_cast<double>(value)); }
  void add_episodes(std::span<const run::Rollout> rollouts);
  void add_lengths(const std::string& name, std::span<const run::Rollout> rollouts);

  Metrics metrics_;
  const Stopwatch step_;
  Stopwatch phase_;
};

}  // namespace tlt::rl

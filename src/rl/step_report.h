// StepReport: sets the metrics of a step under verl's names, from the results of its phases.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "data/dataset.h"
#include "rl/group_filter.h"
#include "rl/rollout_phase.h"
#include "run/rollout.h"
#include "train/trainer.h"

namespace tlt::rl {

// Sets critic/score/*, response_length/*, prompt_length/* of the rollouts to train on.
// `max_tokens`: the limit at which responses are truncated.
void report_rollouts(std::span<const data::Prompt> prompts, std::span<const run::Rollout> rollouts,
                     int64_t max_tokens, Metrics& metrics);

// Sets rollout/* and reward/unscored of all rollouts of the step; with dynamic sampling also their
// counts under verl's and slime's names: train/num_gen_batches, rollout/dynamic_filter/*.
void report_generated(const Generated& generated, bool is_filtered, Metrics& metrics);

// Sets critic/rewards/* over samples and critic/advantages/* over tokens.
void report_advantages(std::span<const double> rewards, std::span<const train::TrainSample> samples,
                       Metrics& metrics);

// Sets actor/* and training/rollout_probs_diff_*.
void report_training(const train::TrainStats& stats, Metrics& metrics);

// Sets val-core/<data source>/reward/mean@n and val-aux/*.
void report_validation(std::span<const data::Prompt> prompts,
                       std::span<const run::Rollout> rollouts, int64_t samples, Metrics& metrics);

}  // namespace tlt::rl

// StepReport: a step's numbers under verl's names, from what the step's parts left behind.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "data/dataset.h"
#include "rl/group_filter.h"
#include "rl/rollout.h"
#include "rl/rollout_phase.h"
#include "train/trainer.h"

namespace tlt::rl {

// critic/score/*, response_length/*, prompt_length/* of what is learned from. `max_tokens`: the
// limit that truncates responses.
void report_rollouts(std::span<const data::Prompt> prompts, std::span<const Rollout> rollouts,
                     int64_t max_tokens, Metrics& metrics);

// rollout/*, reward/unscored of all that was rolled out; with dynamic sampling also how much that
// was, under verl's and slime's names: train/num_gen_batches, rollout/dynamic_filter/*.
void report_generated(const Generated& generated, bool is_filtered, Metrics& metrics);

// critic/rewards/*, and critic/advantages/* over tokens.
void report_advantages(std::span<const double> rewards, std::span<const train::TrainSample> samples,
                       Metrics& metrics);

// actor/*, training/rollout_probs_diff_*.
void report_training(const train::TrainStats& stats, Metrics& metrics);

// val-core/<data source>/reward/mean@n and what goes with it.
void report_validation(std::span<const data::Prompt> prompts, std::span<const Rollout> rollouts,
                       int64_t samples, Metrics& metrics);

// The value below which a share of the values lies (nearest rank). REQUIRES: not empty.
double percentile(std::vector<double> values, double share);

}  // namespace tlt::rl

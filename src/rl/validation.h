// What validation in training (rl_loop.h) and `tlt eval` (evaluation.h) have in common: the rows,
// how they are sampled, and the scores of their responses.
//
// Threading  pure functions; start_reward() may start processes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "reward/eval_statistics.h"
#include "reward/reward.h"
#include "rl/group_filter.h"
#include "rl/rollout_phase.h"
#include "run/rollout.h"
#include "run/run_context.h"
#include "run/run_options.h"

namespace tlt::rl {

// To call before the model is loaded, so that a reward that cannot run fails within a second.
std::shared_ptr<const reward::Reward> start_reward(const run::RunOptions& options);

// The rows of a split; refuses those whose answer the reward cannot use.
data::Dataset load_rows(const run::RunOptions& options, const run::RunContext& context,
                        const reward::Reward& reward, data::Split split);

// rollout.val_kwargs, with uniforms that no training step uses: the same in each validation.
SamplingPlan validation_plan(const run::RunOptions& options);

// Whether the accuracy of a response is at least 1. `accuracy`: of the metric acc, the score
// without format, length and repetition.
bool passes(const run::Rollout& rollout, const GroupFilter& accuracy);

// The scores of each prompt's responses. REQUIRES: rollouts ordered by prompt.
std::vector<reward::PromptScores> prompt_scores(std::span<const data::Prompt> prompts,
                                                std::span<const run::Rollout> rollouts,
                                                const GroupFilter& accuracy);

}  // namespace tlt::rl

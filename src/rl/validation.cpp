// SPDX-License-Identifier: Apache-2.0
#include "rl/validation.h"

#include "reward/episode_reward.h"
#include "run/report/timeline_steps.h"

namespace tlt::rl {
namespace {

// The RL step of validation's uniforms; no training step uses it.
constexpr uint32_t kValidationStep = uint32_t{1} << 31;
// A sum of weighted parts may miss 1 by rounding.
constexpr double kPasses = 1 - 1e-9;

data::RequiredFields fields_for(const reward::Reward& reward) {
  const reward::RewardNeeds needs = reward.needs();
  return {.ground_truth = needs.ground_truth, .data_source = needs.data_source};
}

data::RowCheck row_check(const reward::Reward& reward, int64_t max_response_tokens) {
  return [&reward, max_response_tokens](const data::Prompt& prompt) {
    reward.check_row({.data_source = prompt.data_source,
                      .ground_truth = prompt.ground_truth,
                      .extra_info = &prompt.extra_info,
                      .prompt = prompt.text,
                      .max_response_tokens = max_response_tokens});
  };
}

}  // namespace

std::shared_ptr<const reward::Reward> start_reward(const run::RunOptions& options) {
  std::shared_ptr<const reward::Reward> reward = options.environment.is_on()
                                                     ? reward::make_episode_reward(options.reward)
                                                     : reward::make_reward(options.reward);
  reward->start();
  return reward;
}

data::Dataset load_rows(const run::RunOptions& options, const run::RunContext& context,
                        const reward::Reward& reward, data::Split split) {
  return data::Dataset::load(context.data, context.tokenizer, split, fields_for(reward),
                             row_check(reward, options.data.max_response_length));
}

SamplingPlan validation_plan(const run::RunOptions& options) {
  const run::ValidationSampling& how = options.rollout.validation;
  rollout::SamplingOptions sampling = options.rollout.sampling;
  sampling.temperature = how.temperature;
  sampling.top_k = how.top_k;
  sampling.top_p = how.top_p;
  sampling.max_new_tokens = options.data.max_response_length;
  return {.sampling = std::make_shared<const rollout::SamplingOptions>(std::move(sampling)),
          .samples = how.n,
          .rl_step = kValidationStep,
          .seed = static_cast<uint64_t>(options.trainer.seed),
          .name = {run::kValidationLane, run::kValidationLane}};
}

bool passes(const run::Rollout& rollout, const GroupFilter& accuracy) {
  return accuracy.value(rollout) >= kPasses;
}

std::vector<reward::PromptScores> prompt_scores(std::span<const data::Prompt> prompts,
                                                std::span<const run::Rollout> rollouts,
                                                const GroupFilter& accuracy) {
  std::vector<reward::PromptScores> scores;
  for (size_t i = 0; i < rollouts.size(); ++i) {
    const run::Rollout& rollout = rollouts[i];
    if (i == 0 || rollouts[i - 1].prompt != rollout.prompt)
      scores.push_back({.source = prompts[rollout.prompt].data_source});
    scores.back().scores.push_back(rollout.score);
    scores.back().passed.push_back(passes(rollout, accuracy));
    scores.back().answers.push_back(rollout.answer);
  }
  return scores;
}

}  // namespace tlt::rl

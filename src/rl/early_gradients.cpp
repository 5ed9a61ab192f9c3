// SPDX-License-Identifier: Apache-2.0
#include "rl/early_gradients.h"

#include <algorithm>

#include "base/check.h"
#include "cluster/launch.h"
#include "rl/advantages.h"
#include "train/pack_plan.h"

namespace tlt::rl {

train::TrainSample make_sample(std::span<const int32_t> prompt, const run::Rollout& rollout) {
  const rollout::Response& response = rollout.response;
  if (!rollout.own_prompt.empty()) prompt = rollout.own_prompt;
  train::TrainSample sample;
  sample.tokens.assign(prompt.begin(), prompt.end());
  sample.tokens.insert(sample.tokens.end(), response.tokens.begin(), response.tokens.end());
  sample.response_begin = static_cast<int32_t>(prompt.size());
  sample.rollout_logprobs = response.logprobs;
  sample.rollout_entropies = response.entropies;
  if (!response.observed.empty()) {
    sample.weights.resize(response.tokens.size());
    response.visit_tokens(
        [&](size_t i, bool is_observed) { sample.weights[i] = is_observed ? 0.0F : 1.0F; });
  }
  sample.group = rollout.prompt;
  return sample;
}

EarlyGradients::EarlyGradients(const run::RunOptions& options, train::Trainer& trainer,
                               const model::PolicyModel* reference)
    : options_(options),
      trainer_(trainer),
      reference_(reference),
      alone_(cluster::make_comm(cluster::Launch{}, {})),
      prompts_(options.actor.ppo_mini_batch_size > 0
                   ? std::min(options.actor.ppo_mini_batch_size, options.data.train_batch_size)
                   : options.data.train_batch_size) {}

std::string EarlyGradients::obstacle(const run::RunOptions& options) {
  const std::string& estimator = options.algorithm.adv_estimator;
  const auto needs_all = [](const std::string& option) {
    return option + " needs all of them first";
  };
  if (options.distillation.is_remote()) return needs_all("distillation.teacher (a server)");
  if (!options.actor.early_gradients) return "actor.early_gradients=false";
  if (options.trains_in_groups())
    return "rollout.tensor_model_parallel_size trains the model by all workers of a group";
  if (options.algorithm.filter_groups.enable) return needs_all("algorithm.filter_groups.enable");
  if (estimator == "gpg" || options.algorithm.has_critic() ||
      estimator.starts_with("reinforce_plus_plus"))
    return needs_all("algorithm.adv_estimator=" + estimator);
  if (options.actor.loss.policy_loss.uses_covariance())
    return needs_all("actor.policy_loss.loss_mode=" + options.actor.loss.policy_loss.loss_mode);
  return "";
}

void EarlyGradients::begin_step() {
  group_.reset();
  reference_logprobs_.clear();
}

std::vector<std::vector<float>> EarlyGradients::reference_of(
    std::span<const train::TrainSample> samples) const {
  std::vector<std::vector<float>> logprobs(samples.size());
  size_t i = 0;
  for (const std::span<const train::TrainSample> group : train::groups_of(samples)) {
    // A lost worker's group may have been rolled out again, and with an environment that does not
    // repeat its answers it has other tokens.
    if (const auto found = reference_logprobs_.find(group.front().group);
        found != reference_logprobs_.end() &&
        std::ranges::equal(found->second.tokens, group, {}, {}, &train::TrainSample::tokens))
      std::ranges::copy(found->second.logprobs, logprobs.begin() + static_cast<std::ptrdiff_t>(i));
    i += group.size();
  }
  return logprobs;
}

void EarlyGradients::begin(std::span<const int32_t> prompt,
                           std::span<const run::Rollout> rollouts) {
  TLT_CHECK(!has_work() && takes(rollouts.front().prompt));
  Group group;
  if (options_.algorithm.has_greedy_baseline()) {
    group.baselines = {rollouts.back().score};
    rollouts = rollouts.first(rollouts.size() - 1);
  }
  for (const run::Rollout& rollout : rollouts) {
    group.samples.push_back(make_sample(prompt, rollout));
    group.scores.push_back(rollout.score);
  }
  group_ = std::move(group);
}

bool EarlyGradients::try_part() {
  if (!group_) return false;
  if (!group_->has_advantages)
    set_advantages();
  else if (!trainer_.compute_early(group_->samples))
    group_.reset();
  return true;
}

void EarlyGradients::set_advantages() {
  Group& group = *group_;
  if (reference_) {
    auto logprobs =
        train::score_samples(*reference_, group.samples,
                             {.temperature = options_.rollout.sampling.rule().logprob_temperature(),
                              .max_tokens = options_.actor.max_tokens},
                             *alone_);
    Scored& scored = reference_logprobs_[group.samples.front().group];
    for (size_t i = 0; i < logprobs.size(); ++i) {
      group.samples[i].reference_logprobs = logprobs[i];
      scored.tokens.push_back(group.samples[i].tokens);
    }
    scored.logprobs = std::move(logprobs);
  }
  add_advantages(options_.algorithm, group.scores, options_.rollout.n, group.samples,
                 group.baselines);
  add_teacher(options_.distillation, group.samples);
  group.has_advantages = true;
}

}  // namespace tlt::rl

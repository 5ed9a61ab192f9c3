// SPDX-License-Identifier: Apache-2.0
#include "rl/step_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/statistics.h"

namespace tlt::rl {
namespace {

// With divisor n - 1; 0 of a single value.
double variance(const std::vector<double>& values) {
  const double middle = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return values.size() > 1 ? squares / static_cast<double>(values.size() - 1) : 0;
}

// Standard error of the mean of `values`.
double standard_error(const std::vector<double>& values) {
  return std::sqrt(variance(values) / static_cast<double>(values.size()));
}

}  // namespace

void StepReport::end_phase(std::string_view phase) {
  set(fmt::format("timing_s/{}", phase), phase_.restart());
}

void StepReport::add_lengths(const std::string& name, std::span<const run::Rollout> rollouts) {
  std::vector<double> lengths, truncated;
  for (const run::Rollout& rollout : rollouts) {
    lengths.push_back(static_cast<double>(rollout.response.tokens.size()));
    truncated.push_back(rollout.response.finish == rollout::FinishReason::kLength ? 1 : 0);
  }
  metrics_.add_stats(name, lengths);
  for (const auto& [label, share] : {std::pair("p50", 0.50), {"p90", 0.90}, {"p99", 0.99}})
    set(name + "/" + label, percentile(lengths, share));
  set(name + "/clip_ratio", mean(truncated));
}

void StepReport::add_rollouts(std::span<const data::Prompt> prompts,
                              std::span<const run::Rollout> rollouts, int64_t max_tokens) {
  std::vector<double> scores, prompt_lengths;
  for (const run::Rollout& rollout : rollouts) {
    scores.push_back(rollout.score);
    const std::vector<int32_t>& prompt =
        rollout.own_prompt.empty() ? prompts[rollout.prompt].tokens : rollout.own_prompt;
    prompt_lengths.push_back(static_cast<double>(prompt.size()));
  }
  metrics_.add_stats("critic/score", scores);
  add_lengths("response_length", rollouts);
  set("response_length/limit", max_tokens);
  metrics_.add_stats("prompt_length", prompt_lengths);
  add_episodes(rollouts);
}

void StepReport::add_episodes(std::span<const run::Rollout> rollouts) {
  if (rollouts.empty() || !rollouts.front().episode) return;
  double turns = 0, failed = 0, reward = 0, observed = 0;
  for (const run::Rollout& rollout : rollouts) {
    if (!rollout.episode) continue;  // of a file unfinished_step that says so
    const reward::EpisodeOutcome& episode = *rollout.episode;
    if (const auto found = episode.extras.find("turns"); found != episode.extras.end())
      turns += found->second;
    failed += episode.fault.empty() ? 0 : 1;
    reward += episode.reward;
    observed += static_cast<double>(std::ssize(rollout.response.tokens) -
                                    rollout.response.sampled_tokens());
  }
  const auto count = static_cast<double>(rollouts.size());
  set("environment/turns", turns / count);
  set("environment/failed", failed);
  set("environment/reward", reward / count);
  set("environment/observed_tokens", observed / count);
}

void StepReport::add_generated(const Generated& generated, bool is_filtered) {
  const auto tokens = static_cast<double>(generated.tokens);
  set("rollout/frac_reward_zero_std",
      static_cast<double>(generated.equal_groups) / static_cast<double>(generated.groups));
  set("rollout/responses", generated.responses);
  set("rollout/tokens", tokens);
  set("rollout/tokens_per_target_forward",
      tokens / static_cast<double>(std::max<int64_t>(1, generated.forwards)));
  set("reward/unscored", generated.unscored);
  if (!is_filtered) return;
  set("critic/score_generated/mean", generated.score / static_cast<double>(generated.responses));
  set("train/num_gen_batches", generated.batches);
  set("rollout/dynamic_filter/drop_zero_std", generated.filtered);
  set("rollout/dynamic_filter/drop_surplus", generated.surplus);
}

void StepReport::add_advantages(std::span<const double> rewards,
                                std::span<const train::TrainSample> samples) {
  std::vector<double> advantages;
  for (const train::TrainSample& sample : samples)
    for (size_t t = 0; t < sample.advantages.size(); ++t)
      if (sample.weight(static_cast<int64_t>(t)) > 0) advantages.push_back(sample.advantages[t]);
  metrics_.add_stats("critic/rewards", rewards);
  metrics_.add_stats("critic/advantages", advantages);
}

void StepReport::add_baselines(std::span<const run::Rollout> baselines) {
  if (baselines.empty()) return;
  std::vector<double> scores;
  for (const run::Rollout& rollout : baselines) scores.push_back(rollout.score);
  metrics_.add_stats("critic/baseline", scores);
  set("rollout/greedy_responses", baselines.size());
}

void StepReport::add_critic(const train::TrainStats& stats,
                            std::span<const train::TrainSample> samples) {
  std::vector<double> values, returns, errors;
  for (const train::TrainSample& sample : samples)
    for (size_t t = 0; t < sample.values.size(); ++t) {
      if (sample.weight(static_cast<int64_t>(t)) == 0) continue;  // not sampled
      values.push_back(sample.values[t]);
      returns.push_back(sample.returns[t]);
      errors.push_back(returns.back() - values.back());
    }
  for (const auto& [name, value] : stats.metrics) set(name, value);
  metrics_.add_stats("critic/values", values);
  metrics_.add_stats("critic/returns", returns);
  set("critic/vf_explained_var", 1 - variance(errors) / (variance(returns) + 1e-5));
  set("critic/skipped_steps", stats.skipped_steps);
}

void StepReport::add_training(const train::TrainStats& stats) {
  for (const auto& [name, value] : stats.metrics) set(name, value);
  set("actor/packs", stats.packs);
  set("actor/skipped_steps", stats.skipped_steps);
  set("train/optimizer_bytes", stats.optimizer_bytes);
  set("training/rollout_probs_diff_max", stats.probability_difference);
  set("training/rollout_logprobs_diff_max", stats.logprob_difference);
}

void StepReport::add_validation(std::span<const reward::PromptScores> prompts,
                                std::span<const run::Rollout> rollouts) {
  for (const reward::EvalStatistic& one : reward::eval_statistics(prompts, /*resamples=*/0))
    set(one.metric(), one.estimate.value);
  std::vector<double> all;
  for (const run::Rollout& rollout : rollouts) all.push_back(rollout.score);
  set("val-aux/reward/mean", mean(all));
  set("val-aux/reward/standard_error", standard_error(all));
  add_lengths("val-aux/response_length", rollouts);
}

}  // namespace tlt::rl

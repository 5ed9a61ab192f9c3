// SPDX-License-Identifier: Apache-2.0
#include "rl/step_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/statistics.h"

namespace tlt::rl {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void add_length_stats(const std::string& name, std::span<const run::Rollout> rollouts,
                      Metrics& metrics) {
  std::vector<double> lengths, truncated;
  for (const run::Rollout& rollout : rollouts) {
    lengths.push_back(static_cast<double>(rollout.response.tokens.size()));
    truncated.push_back(rollout.response.finish == rollout::FinishReason::kLength ? 1 : 0);
  }
  metrics.add_stats(name, lengths);
  for (const auto& [label, share] : {std::pair("p50", 0.50), {"p90", 0.90}, {"p99", 0.99}})
    metrics.set(name + "/" + label, percentile(lengths, share));
  metrics.set(name + "/clip_ratio", mean(truncated));
}

// Standard error of the mean of `values`.
double standard_error(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double middle = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return count > 1 ? std::sqrt(squares / (count - 1) / count) : 0;
}

}  // namespace

void report_rollouts(std::span<const data::Prompt> prompts, std::span<const run::Rollout> rollouts,
                     int64_t max_tokens, Metrics& metrics) {
  std::vector<double> scores, prompt_lengths;
  for (const run::Rollout& rollout : rollouts) {
    scores.push_back(rollout.score);
    prompt_lengths.push_back(static_cast<double>(prompts[rollout.prompt].tokens.size()));
  }
  metrics.add_stats("critic/score", scores);
  add_length_stats("response_length", rollouts, metrics);
  metrics.set("response_length/limit", static_cast<double>(max_tokens));
  metrics.add_stats("prompt_length", prompt_lengths);
}

void report_generated(const Generated& generated, bool is_filtered, Metrics& metrics) {
  const auto tokens = static_cast<double>(generated.tokens);
  metrics.set("rollout/frac_reward_zero_std",
              static_cast<double>(generated.equal_groups) / static_cast<double>(generated.groups));
  metrics.set("rollout/responses", static_cast<double>(generated.responses));
  metrics.set("rollout/tokens", tokens);
  metrics.set("rollout/tokens_per_target_forward",
              tokens / static_cast<double>(std::max<int64_t>(1, generated.forwards)));
  metrics.set("reward/unscored", static_cast<double>(generated.unscored));
  if (!is_filtered) return;
  metrics.set("critic/score_generated/mean",
              generated.score / static_cast<double>(generated.responses));
  metrics.set("train/num_gen_batches", static_cast<double>(generated.batches));
  metrics.set("rollout/dynamic_filter/drop_zero_std", static_cast<double>(generated.filtered));
  metrics.set("rollout/dynamic_filter/drop_surplus", static_cast<double>(generated.surplus));
}

void report_advantages(std::span<const double> rewards, std::span<const train::TrainSample> samples,
                       Metrics& metrics) {
  std::vector<double> advantages;
  for (const train::TrainSample& sample : samples)
    advantages.insert(advantages.end(), sample.advantages.begin(), sample.advantages.end());
  metrics.add_stats("critic/rewards", rewards);
  metrics.add_stats("critic/advantages", advantages);
}

void report_training(const train::TrainStats& stats, Metrics& metrics) {
  for (const auto& [name, value] : stats.metrics) metrics.set(name, value);
  metrics.set("actor/packs", static_cast<double>(stats.packs));
  metrics.set("train/optimizer_bytes", static_cast<double>(stats.optimizer_bytes));
  metrics.set("training/rollout_probs_diff_max", stats.probability_difference);
  metrics.set("training/rollout_logprobs_diff_max", stats.logprob_difference);
}

void report_validation(std::span<const data::Prompt> prompts,
                       std::span<const run::Rollout> rollouts, int64_t samples, Metrics& metrics) {
  std::map<std::string, std::vector<double>> scores;
  std::vector<double> all;
  for (const run::Rollout& rollout : rollouts) {
    const std::string& source = prompts[rollout.prompt].data_source;
    scores[source.empty() ? "unknown" : source].push_back(rollout.score);  // verl's name
    all.push_back(rollout.score);
  }
  for (const auto& [source, values] : scores)
    metrics.set(fmt::format("val-core/{}/reward/mean@{}", source, samples), mean(values));
  metrics.set("val-aux/reward/mean", mean(all));
  metrics.set("val-aux/reward/standard_error", standard_error(all));
  add_length_stats("val-aux/response_length", rollouts, metrics);
}

}  // namespace tlt::rl

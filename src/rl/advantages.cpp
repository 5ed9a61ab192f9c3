// SPDX-License-Identifier: Apache-2.0
#include "rl/advantages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "base/check.h"
#include "train/kl.h"

namespace tlt::rl {
namespace {

// The reward of each token: the score at the last token, 0 elsewhere, minus the token's KL penalty.
std::vector<double> token_rewards(const run::AlgorithmOptions& options, double score,
                                  const train::TrainSample& sample) {
  std::vector<double> rewards(static_cast<size_t>(sample.response_size()));
  if (!rewards.empty()) rewards.back() = score;
  if (!options.use_kl_in_reward) return rewards;
  TLT_CHECK(sample.rollout_logprobs.size() == rewards.size() &&
                sample.reference_logprobs.size() == rewards.size(),
            "sample ", sample.id, " has no reference logprobs");
  const train::KlType type = train::parse_kl_type(options.kl_penalty, "algorithm.kl_penalty");
  for (size_t t = 0; t < rewards.size(); ++t)
    rewards[t] -=
        options.kl_ctrl.kl_coef *
        train::estimate_kl(type, sample.rollout_logprobs[t], sample.reference_logprobs[t]).value;
  return rewards;
}

double sum_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// The advantage of each sample of one group, before any scaling over the whole step.
std::vector<double> group_advantages(const run::AlgorithmOptions& options,
                                     std::span<const double> rewards,
                                     std::span<const train::TrainSample> samples) {
  std::vector<double> advantages(rewards.begin(), rewards.end());
  if (rewards.size() < 2) return advantages;
  const auto n = static_cast<double>(rewards.size());
  double baseline = sum_of(rewards) / n, scale = 1;
  if (options.adv_estimator == "opo") {
    double tokens = 0, weighted = 0;
    for (size_t i = 0; i < rewards.size(); ++i) {
      const auto length = static_cast<double>(samples[i].response_size());
      tokens += length;
      weighted += length * rewards[i];
    }
    baseline = tokens > 0 ? weighted / tokens : 0;
  }
  if (options.adv_estimator == "rloo") scale = n / (n - 1);
  if (options.adv_estimator == "grpo" && options.norm_adv_by_std_in_grpo) {
    double squares = 0;
    for (const double reward : rewards) squares += (reward - baseline) * (reward - baseline);
    scale = 1 / (std::sqrt(squares / (n - 1)) + 1e-6);
  }
  for (double& advantage : advantages) advantage = (advantage - baseline) * scale;
  return advantages;
}

using TokenValues = std::vector<std::vector<double>>;  // [sample][response token]

std::vector<double> returns_of(std::vector<double> rewards, double gamma) {
  for (size_t t = rewards.size(); t-- > 1;) rewards[t - 1] += gamma * rewards[t];
  return rewards;
}

void whiten(TokenValues& values) {
  double count = 0, sum = 0, squares = 0;
  for (const auto& tokens : values) {
    count += static_cast<double>(tokens.size());
    sum += sum_of(tokens);
  }
  if (count < 2) return;
  const double mean = sum / count;
  for (const auto& tokens : values)
    for (const double value : tokens) squares += (value - mean) * (value - mean);
  const double scale = 1 / std::sqrt(squares / (count - 1) + 1e-8);
  for (auto& tokens : values)
    for (double& value : tokens) value = (value - mean) * scale;
}

}  // namespace

std::vector<double> add_advantages(const run::AlgorithmOptions& options,
                                   std::span<const double> scores, int64_t group_size,
                                   std::span<train::TrainSample> samples) {
  TLT_CHECK(
      scores.size() == samples.size() && group_size > 0 && std::ssize(samples) % group_size == 0,
      scores.size(), " scores of ", samples.size(), " samples in groups of ", group_size);
  std::vector<double> rewards;
  TokenValues values;
  for (size_t i = 0; i < samples.size(); ++i) {
    const std::vector<double> by_token = token_rewards(options, scores[i], samples[i]);
    // A response without tokens keeps its score, for the baseline of its group.
    rewards.push_back(by_token.empty() ? scores[i] : sum_of(by_token));
    if (options.adv_estimator == "reinforce_plus_plus")
      values.push_back(returns_of(by_token, options.gamma));
  }
  const bool has_values = !values.empty();
  const auto size = static_cast<size_t>(group_size);
  for (size_t first = 0; first < samples.size() && !has_values; first += size) {
    const std::vector<double> group = group_advantages(
        options, std::span(rewards).subspan(first, size), samples.subspan(first, size));
    for (size_t i = 0; i < size; ++i)
      values.emplace_back(static_cast<size_t>(samples[first + i].response_size()), group[i]);
  }
  if (options.adv_estimator == "gpg") {
    const auto nonzero = static_cast<double>(
        std::ranges::count_if(rewards, [](double reward) { return reward != 0; }));
    const double alpha = static_cast<double>(rewards.size()) / std::max(1.0, nonzero);
    for (auto& tokens : values)
      for (double& value : tokens) value *= alpha;
  }
  if (options.adv_estimator.starts_with("reinforce_plus_plus")) whiten(values);
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i].advantages.assign(values[i].begin(), values[i].end());
  return rewards;
}

}  // namespace tlt::rl

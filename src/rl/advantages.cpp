// SPDX-License-Identifier: Apache-2.0
#include "rl/advantages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "base/check.h"
#include "reward/eval_statistics.h"
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
  for (size_t t = 0; t < rewards.size(); ++t) {
    if (sample.weight(static_cast<int64_t>(t)) == 0) continue;  // not sampled
    rewards[t] -=
        options.kl_ctrl.kl_coef *
        train::estimate_kl(type, sample.rollout_logprobs[t], sample.reference_logprobs[t]).value;
  }
  return rewards;
}

double sum_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// With divisor n - 1. REQUIRES: at least two.
double deviation_of(std::span<const double> values) {
  const double count = static_cast<double>(values.size()), mean = sum_of(values) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (count - 1));
}

// Of the best response, over the second best; 0 of the others.
std::vector<double> best_advantages(std::span<const double> rewards, bool by_deviation) {
  std::vector<double> advantages(rewards.size());
  const auto best = std::ranges::max_element(rewards) - rewards.begin();
  double second = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < rewards.size(); ++i)
    if (static_cast<std::ptrdiff_t>(i) != best) second = std::max(second, rewards[i]);
  advantages[static_cast<size_t>(best)] = (rewards[static_cast<size_t>(best)] - second) *
                                          (by_deviation ? 1 / (deviation_of(rewards) + 1e-6) : 1);
  return advantages;
}

// Of response i: over all choices of k responses with i, the mean of the best reward.
double mean_best_with(std::span<const double> rewards, size_t i, int64_t k) {
  if (k == 1) return rewards[i];
  std::vector<double> others;
  for (size_t j = 0; j < rewards.size(); ++j)
    if (j != i) others.push_back(std::max(rewards[i], rewards[j]));
  return reward::best_at_k(others, k - 1);
}

std::vector<double> pass_at_k_advantages(std::span<const double> rewards, int64_t k,
                                         bool by_deviation) {
  std::vector<double> sorted(rewards.begin(), rewards.end());
  std::ranges::sort(sorted);
  // Without this, rounding would give advantages to a group whose choices are all alike.
  if (sorted[static_cast<size_t>(k) - 1] == sorted.back())
    return std::vector<double>(rewards.size());
  const std::vector<double> probabilities = reward::largest_probabilities(std::ssize(rewards), k);
  const double mean = reward::best_at_k(rewards, k);
  double variance = 0;
  for (size_t j = 0; j < sorted.size(); ++j)
    variance += probabilities[j] * (sorted[j] - mean) * (sorted[j] - mean);
  const double scale = by_deviation ? 1 / (std::sqrt(variance) + 1e-6) : 1;
  std::vector<double> advantages;
  for (size_t i = 0; i < rewards.size(); ++i)
    advantages.push_back((mean_best_with(rewards, i, k) - mean) * scale);
  return advantages;
}

// The advantage of each sample of one group, before any scaling over the whole step.
std::vector<double> group_advantages(const run::AlgorithmOptions& options,
                                     std::span<const double> rewards,
                                     std::span<const train::TrainSample> samples) {
  std::vector<double> advantages(rewards.begin(), rewards.end());
  if (rewards.size() < 2) return advantages;
  // Without this, rounding of the mean would give equal rewards such as 0.1 an advantage.
  if (std::ranges::all_of(rewards, [&](double reward) { return reward == rewards[0]; }))
    return std::vector<double>(rewards.size());
  const auto n = static_cast<double>(rewards.size());
  if (options.adv_estimator == "grpo_passk")
    return best_advantages(rewards, options.norm_adv_by_std_in_grpo);
  if (options.adv_estimator == "pass_at_k")
    return pass_at_k_advantages(rewards, options.pass_k, options.norm_adv_by_std_in_grpo);
  double baseline = sum_of(rewards) / n, scale = 1;
  if (options.adv_estimator == "opo") {
    double tokens = 0, weighted = 0;
    for (size_t i = 0; i < rewards.size(); ++i) {
      double length = 0;
      for (int64_t t = 0; t < samples[i].response_size(); ++t)
        length += samples[i].weight(t) > 0 ? 1 : 0;
      tokens += length;
      weighted += length * rewards[i];
    }
    baseline = tokens > 0 ? weighted / tokens : 0;
  }
  if (options.adv_estimator == "rloo") scale = n / (n - 1);
  if (options.adv_estimator == "max_rl") scale = baseline > 0 ? 1 / baseline : 0;
  if (options.adv_estimator == "grpo" && options.norm_adv_by_std_in_grpo)
    scale = 1 / (deviation_of(rewards) + 1e-6);
  for (double& advantage : advantages) advantage = (advantage - baseline) * scale;
  return advantages;
}

using TokenValues = std::vector<std::vector<double>>;  // [sample][response token]

// The discounted future rewards of each token, minus `baseline`.
std::vector<double> returns_of(std::vector<double> rewards, double gamma, double baseline = 0) {
  for (size_t t = rewards.size(); t-- > 1;) rewards[t - 1] += gamma * rewards[t];
  for (double& value : rewards) value -= baseline;
  return rewards;
}

// Before the whitening; sets the sample's returns.
std::vector<double> gae_of(const run::AlgorithmOptions& options, std::span<const double> rewards,
                           train::TrainSample& sample) {
  TLT_CHECK(sample.values.size() == rewards.size(), "sample ", sample.id, " has ",
            sample.values.size(), " values for ", rewards.size(), " tokens");
  std::vector<double> advantages(rewards.size());
  sample.returns.resize(rewards.size());
  double next_value = 0, next_advantage = 0;  // of the next token that was sampled
  for (size_t t = rewards.size(); t-- > 0;) {
    const double value = sample.values[t];
    if (sample.weight(static_cast<int64_t>(t)) > 0) {
      next_advantage = rewards[t] + options.gamma * next_value - value +
                       options.gamma * options.lam * next_advantage;
      next_value = value;
    }
    advantages[t] = next_advantage;
    sample.returns[t] = static_cast<float>(next_advantage + value);
  }
  return advantages;
}

// Tokens of weight 0 do not count.
void whiten(std::span<const train::TrainSample> samples, TokenValues& values) {
  double count = 0, sum = 0, squares = 0;
  const auto visit = [&](size_t i, auto&& see) {
    for (size_t t = 0; t < values[i].size(); ++t)
      if (samples[i].weight(static_cast<int64_t>(t)) > 0) see(values[i][t]);
  };
  for (size_t i = 0; i < values.size(); ++i) {
    double own = 0;
    visit(i, [&](double value) { ++count, own += value; });
    sum += own;
  }
  if (count < 2) return;
  const double mean = sum / count;
  for (size_t i = 0; i < values.size(); ++i)
    visit(i, [&](double value) { squares += (value - mean) * (value - mean); });
  const double scale = 1 / std::sqrt(squares / (count - 1) + 1e-8);
  for (auto& tokens : values)
    for (double& value : tokens) value = (value - mean) * scale;
}

// REQUIRES: options.is_estimate().
train::KlType teacher_kl_type(const train::DistillationOptions& options) {
  return train::parse_kl_type(options.loss_mode, "distillation.loss_mode");
}

train::KlEstimate teacher_estimate(train::KlType type, const train::TrainSample& sample,
                                   size_t token) {
  return train::estimate_kl(type, sample.rollout_logprobs[token], sample.reference_logprobs[token]);
}

}  // namespace

std::vector<double> add_advantages(const run::AlgorithmOptions& options,
                                   std::span<const double> scores, int64_t group_size,
                                   std::span<train::TrainSample> samples,
                                   std::span<const double> baselines) {
  TLT_CHECK(
      scores.size() == samples.size() && group_size > 0 && std::ssize(samples) % group_size == 0,
      scores.size(), " scores of ", samples.size(), " samples in groups of ", group_size);
  const auto size = static_cast<size_t>(group_size);
  TLT_CHECK(baselines.size() == (options.has_greedy_baseline() ? samples.size() / size : 0),
            baselines.size(), " baselines of ", samples.size(), " samples");
  std::vector<double> rewards;
  TokenValues values;
  for (size_t i = 0; i < samples.size(); ++i) {
    const std::vector<double> by_token = token_rewards(options, scores[i], samples[i]);
    // A response without tokens keeps its score, for the baseline of its group.
    rewards.push_back(by_token.empty() ? scores[i] : sum_of(by_token));
    if (options.adv_estimator == "reinforce_plus_plus")
      values.push_back(returns_of(by_token, options.gamma));
    if (options.has_greedy_baseline())
      values.push_back(returns_of(by_token, /*gamma=*/1, baselines[i / size]));
    if (options.has_critic()) values.push_back(gae_of(options, by_token, samples[i]));
  }
  const bool has_values = !values.empty();
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
  if (options.adv_estimator.starts_with("reinforce_plus_plus") || options.has_critic())
    whiten(samples, values);
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i].advantages.assign(values[i].begin(), values[i].end());
  return rewards;
}

void add_teacher(const train::DistillationOptions& options, std::span<train::TrainSample> samples) {
  for (train::TrainSample& sample : samples) {
    if (!options.use_task_rewards) std::ranges::fill(sample.advantages, 0.0F);
    if (!options.is_estimate()) continue;
    const size_t tokens = sample.advantages.size();
    TLT_CHECK(
        sample.rollout_logprobs.size() == tokens && sample.reference_logprobs.size() == tokens,
        "sample ", sample.id, " has no teacher logprobs");
    const train::KlType type = teacher_kl_type(options);
    for (size_t t = 0; t < tokens; ++t) {
      const train::KlEstimate estimate = teacher_estimate(type, sample, t);
      sample.advantages[t] = static_cast<float>(
          sample.advantages[t] -
          options.coef * (type == train::KlType::kK3 ? estimate.slope : estimate.value));
    }
  }
}

double mean_teacher_kl(const train::DistillationOptions& options,
                       std::span<const train::TrainSample> samples) {
  const train::KlType type = teacher_kl_type(options);
  double sum = 0, tokens = 0;
  for (const train::TrainSample& sample : samples)
    for (size_t t = 0; t < sample.reference_logprobs.size(); ++t) {
      if (sample.weight(static_cast<int64_t>(t)) == 0) continue;  // not sampled
      sum += teacher_estimate(type, sample, t).value;
      ++tokens;
    }
  return tokens > 0 ? sum / tokens : 0;
}

}  // namespace tlt::rl

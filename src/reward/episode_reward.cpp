// SPDX-License-Identifier: Apache-2.0
#include "reward/episode_reward.h"

namespace tlt::reward {

void EpisodeReward::start() const {
  if (functions_) functions_->start();
}

RewardResult EpisodeReward::score(const RewardInput& input) const {
  TLT_CHECK(input.episode != nullptr, "a response without its episode");
  const EpisodeOutcome& episode = *input.episode;
  if (!episode.fault.empty()) throw Error(episode.fault);
  RewardResult result;
  if (functions_) {
    result = functions_->score(input);
    result.extras[functions_->name()] = result.score;
  }
  for (const auto& [name, value] : episode.extras) result.extras[name] = value;
  result.extras["environment"] = episode.reward;
  result.score += episode.reward;
  return result;
}

void EpisodeReward::check_row(const RewardInput& row) const {
  if (functions_) functions_->check_row(row);
}

double EpisodeReward::wall_factor(std::string_view data_source) const {
  return functions_ ? functions_->wall_factor(data_source) : 1;
}

std::string EpisodeReward::name() const {
  return functions_ ? "environment+" + functions_->name() : "environment";
}

std::unique_ptr<const Reward> make_episode_reward(const RewardOptions& options) {
  const bool is_default = options.functions == RewardOptions{}.functions;
  return std::make_unique<EpisodeReward>(is_default ? nullptr : make_reward(options));
}

}  // namespace tlt::reward

// EpisodeReward: the score of a response with several turns: the sum of the rewards that its
// environment gave, plus the score of reward.functions if any are named.
//
// An episode that failed throws its fault, so that it is counted and shown like a failed reward.
//
// Threading  as Reward.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "reward/reward.h"

namespace tlt::reward {

class EpisodeReward : public Reward {
 public:
  // `functions`: of reward.functions; null: the environment's rewards only.
  explicit EpisodeReward(std::unique_ptr<const Reward> functions)
      : functions_(std::move(functions)) {}

  RewardNeeds needs() const override { return functions_ ? functions_->needs() : RewardNeeds{}; }
  void start() const override;
  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  double wall_factor(std::string_view data_source) const override;
  std::string name() const override;

 private:
  const std::unique_ptr<const Reward> functions_;
};

// REQUIRES: options.check() passes. reward.functions=auto, the default, adds nothing.
std::unique_ptr<const Reward> make_episode_reward(const RewardOptions& options);

}  // namespace tlt::reward

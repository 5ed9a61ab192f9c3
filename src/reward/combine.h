// Combined rewards: WeightedReward adds up rewards, SourceReward selects one by the data source.
//
// If a part throws, the sample loses its whole reward; the RewardError names the part.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reward/code.h"
#include "reward/countdown.h"
#include "reward/gsm8k.h"
#include "reward/math.h"
#include "reward/reward.h"

namespace tlt::reward {

struct WeightedPart {
  std::unique_ptr<const Reward> reward;
  double weight = 1;
};

// Sum of weight times score; extras has the score of each part under its name.
class WeightedReward : public Reward {
 public:
  explicit WeightedReward(std::vector<WeightedPart> parts) : parts_(std::move(parts)) {}

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  RewardNeeds needs() const override;
  double wall_factor(std::string_view data_source) const override;
  void start() const override;
  std::string name() const override;  // gsm8k+regex

 private:
  const std::vector<WeightedPart> parts_;
};

// Selects the reward by the data source, with verl's and TinyZero's names: `openai/gsm8k`,
// `tlt/countdown_trace`, every source with `countdown` in its name; for math the sources of MATH,
// MATH-500, DAPO-Math, AIME and NuminaMath; for code TACO, APPS, CodeContests and Codeforces.
class SourceReward : public Reward {
 public:
  explicit SourceReward(const RewardOptions& options)
      : code_(options.code, options.timeout_seconds) {}

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  RewardNeeds needs() const override { return {.data_source = true, .ground_truth = true}; }
  double wall_factor(std::string_view data_source) const override;
  std::string name() const override { return "auto"; }

 private:
  // Throws InputError if the source has no known reward.
  const Reward& reward_for(std::string_view data_source) const;

  const Gsm8kReward gsm8k_{Gsm8kMethod::kStrict};
  const MathReward math_{MathMethod::kFlexible};
  const CodeReward code_;
  const CountdownReward countdown_;
  const CountdownTraceReward countdown_trace_;
};

}  // namespace tlt::reward

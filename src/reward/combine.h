// Rewards made of rewards: WeightedReward adds them up, SourceReward picks one by the data source.
//
// A part that throws costs the sample its whole reward; the RewardError carries the part's name.
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

// The sum of weight times score; extras has each part's own score under its name.
class WeightedReward : public Reward {
 public:
  explicit WeightedReward(std::vector<WeightedPart> parts) : parts_(std::move(parts)) {}

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  RewardNeeds needs() const override;
  void start() const override;
  std::string name() const override;  // gsm8k+regex

 private:
  const std::vector<WeightedPart> parts_;
};

// The reward that a data source calls for, by verl's and TinyZero's names: `openai/gsm8k`,
// `tlt/countdown_trace`, every source with `countdown` in its name, for math the sources of MATH,
// MATH-500, DAPO-Math, AIME and NuminaMath, for code TACO, APPS, CodeContests and Codeforces.
class SourceReward : public Reward {
 public:
  SourceReward(const RewardOptions& options, Gsm8kMethod gsm8k_method, MathMethod math_method)
      : gsm8k_(gsm8k_method),
        math_(math_method),
        code_(options.code, options.timeout_seconds),
        countdown_(options.countdown_format_score) {}

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  RewardNeeds needs() const override { return {.data_source = true, .ground_truth = true}; }
  std::string name() const override { return "auto"; }

 private:
  // Throws InputError where no reward is known for the source.
  const Reward& reward_for(std::string_view data_source) const;

  const Gsm8kReward gsm8k_;
  const MathReward math_;
  const CodeReward code_;
  const CountdownReward countdown_;
  const CountdownTraceReward countdown_trace_;
};

}  // namespace tlt::reward

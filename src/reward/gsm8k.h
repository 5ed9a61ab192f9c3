// Gsm8kReward: 1 if the number a response ends with is the ground truth, else 0.
//
// The same scores as verl's gsm8k.compute_score, so that curves can be laid over each other,
// oddities included: only the last 300 characters count, numbers are compared as text (`42.` and
// `42.0` are not `42`), and only "strict" removes the commas. Beyond verl, a whole GSM8K answer
// (`... #### 42`) will do as ground truth.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "reward/reward.h"

namespace tlt::reward {

enum class Gsm8kMethod {
  kStrict,    // the number after the last `#### `
  kFlexible,  // the last number
};

class Gsm8kReward : public Reward {
 public:
  explicit Gsm8kReward(Gsm8kMethod method) : method_(method) {}

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  RewardNeeds needs() const override { return {.ground_truth = true}; }
  std::string name() const override { return "gsm8k"; }

 private:
  const Gsm8kMethod method_;
};

}  // namespace tlt::reward

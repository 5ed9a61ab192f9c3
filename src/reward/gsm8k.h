// Gsm8kReward: 1 if the last number of a response is the ground truth, else 0.
//
// Scores equal those of verl's gsm8k.compute_score, so that curves can be compared, oddities
// included: only the last 300 characters count, numbers are compared as strings (`42.` and `42.0`
// are not `42`), and only "strict" removes commas. Unlike verl, a whole GSM8K answer
// (`... #### 42`) is accepted as ground truth.
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
  std::string name() const override {
    return method_ == Gsm8kMethod::kStrict ? "gsm8k" : "gsm8k_flexible";
  }

 private:
  const Gsm8kMethod method_;
};

}  // namespace tlt::reward

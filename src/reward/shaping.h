// Rewards for the form of a response, to be added to a reward for its answer.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "reward/reward.h"

namespace tlt::reward {

// DAPO's soft penalty for overlong responses (eq. 13; verl's overlong_buffer): 0 up to the limit
// minus `buffer` tokens, from there linearly down to -1 at the limit.
class LengthReward : public Reward {
 public:
  explicit LengthReward(int64_t buffer) : buffer_(buffer) {}

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  RewardNeeds needs() const override { return {.response_tokens = true}; }
  std::string name() const override { return "length"; }

 private:
  const int64_t buffer_;
};

// Minus the share of word n-grams that occurred earlier in the response (Open-R1's
// repetition penalty). Words are separated by white space and compared in lower case.
class RepetitionReward : public Reward {
 public:
  explicit RepetitionReward(int64_t words) : words_(words) {}

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput&) const override {}
  RewardNeeds needs() const override { return {}; }
  std::string name() const override { return "repetition"; }

 private:
  const int64_t words_;
};

}  // namespace tlt::reward

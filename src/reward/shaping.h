// Rewards that look at the form of a response, to be added to one that judges its answer.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "reward/reward.h"

namespace tlt::reward {

// DAPO's soft penalty for overlong responses (eq. 13; verl's overlong_buffer): 0 up to the limit
// less `buffer` tokens, from there linearly down to -penalty at the limit.
class LengthReward : public Reward {
 public:
  LengthReward(int64_t buffer, double penalty) : buffer_(buffer), penalty_(penalty) {}

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  RewardNeeds needs() const override { return {.response_tokens = true}; }
  std::string name() const override { return "length"; }

 private:
  const int64_t buffer_;
  const double penalty_;
};

// -penalty times the share of n-grams of words that the response has said before (Open-R1's
// repetition penalty). Words are what white space separates, in lower case.
class RepetitionReward : public Reward {
 public:
  RepetitionReward(int64_t words, double penalty) : words_(words), penalty_(penalty) {}

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput&) const override {}
  RewardNeeds needs() const override { return {}; }
  std::string name() const override { return "repetition"; }

 private:
  const int64_t words_;
  const double penalty_;
};

}  // namespace tlt::reward

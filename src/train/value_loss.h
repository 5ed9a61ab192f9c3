// ValueLoss: the loss of PPO's critic, as in verl (verl/trainer/ppo/core_algos.py:
// compute_value_loss). Per token, v is its value, V the value before the update (TrainSample::values)
// and R its return:
//
//   loss = max((v - R)^2, (clamp(v, V - cliprange_value, V + cliprange_value) - R)^2) / 2
//
// aggregated by loss_agg_mode. It takes values where a policy loss takes logprobs (token_loss.h).
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "train/aggregation.h"
#include "train/loss_options.h"
#include "train/token_loss.h"

namespace tlt::train {

class ValueLoss final : public TokenLoss {
 public:
  // REQUIRES: samples with values and returns.
  ValueLoss(const LossOptions& options, std::span<const TrainSample> batch);

  bool learns_from(const TrainSample&) const override { return true; }
  void add(const ResponseTokens& tokens, const TokenDerivatives& out) override;
  std::vector<double> take_sums() override {
    return {std::exchange(loss_, 0), std::exchange(clipped_, 0), std::exchange(value_, 0)};
  }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums) const override;

 private:
  const double cliprange_;
  const Denominators denominators_;
  const Aggregation aggregation_;
  double loss_ = 0;                 // aggregated
  double clipped_ = 0, value_ = 0;  // means over tokens
};

}  // namespace tlt::train

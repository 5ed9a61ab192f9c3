// DroLoss: the loss of direct reward optimization (DRO: Richemond et al., "Offline Regularised
// Reinforcement Learning for Large Language Models Alignment", https://arxiv.org/abs/2405.19107),
// by token as the Tinker API has it. Of a token with logprob lp and advantage A:
//
//   loss = -(A lp - beta / 2 (lp - rollout)^2)
//
// The loss is a sum over tokens. A token with an advantage of 0 is kept near the rollout's logprob,
// too; only a weight of 0 leaves it out.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "train/token_loss.h"

namespace tlt::train {

struct DroOptions {
  double beta = 0;  // weight of the penalty; from 0

  void check() const;
};

class DroLoss final : public TokenLoss {
 public:
  explicit DroLoss(const DroOptions& options);

  bool learns_from(const TrainSample&) const override { return true; }
  void add(const ResponseTokens& tokens, const TokenDerivatives& out) override;
  std::vector<double> take_sums() override { return {std::exchange(loss_, 0)}; }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums) const override;

 private:
  const double beta_;
  double loss_ = 0;
};

}  // namespace tlt::train

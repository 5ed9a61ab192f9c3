// SPDX-License-Identifier: Apache-2.0
#include "train/dro_loss.h"

#include <cmath>

#include "base/check.h"

namespace tlt::train {

void DroOptions::check() const {
  TLT_CHECK_INPUT(std::isfinite(beta) && beta >= 0, "beta is ", beta, "; give a number from 0");
}

DroLoss::DroLoss(const DroOptions& options) : beta_(options.beta) { options.check(); }

void DroLoss::add(const ResponseTokens& tokens, const TokenDerivatives& out) {
  for (size_t i = 0; i < tokens.logprobs.size(); ++i) {
    const auto at = static_cast<size_t>(tokens.first) + i;
    const double weight = tokens.sample.weight(static_cast<int64_t>(at));
    out.d_logprob[i] = out.d_entropy[i] = 0;
    if (weight == 0) continue;
    const double logprob = tokens.logprobs[i], advantage = tokens.sample.advantages[at];
    const double difference = logprob - tokens.sample.rollout_logprobs[at];
    loss_ -= weight * (advantage * logprob - 0.5 * beta_ * difference * difference);
    out.d_logprob[i] = static_cast<float>(-weight * (advantage - beta_ * difference));
  }
}

std::vector<std::pair<std::string, double>> DroLoss::metrics(std::span<const double> sums) const {
  return {{"actor/loss", sums.front()}};
}

}  // namespace tlt::train

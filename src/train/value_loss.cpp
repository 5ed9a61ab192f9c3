// SPDX-License-Identifier: Apache-2.0
#include "train/value_loss.h"

#include <algorithm>

#include "base/check.h"

namespace tlt::train {

ValueLoss::ValueLoss(const LossOptions& options, std::span<const TrainSample> batch)
    : cliprange_(options.cliprange_value),
      denominators_(batch),
      aggregation_(options, denominators_) {
  for (const TrainSample& sample : batch) {
    const auto size = static_cast<size_t>(sample.response_size());
    TLT_CHECK(sample.values.size() == size && sample.returns.size() == size, "sample ", sample.id,
              " has ", sample.values.size(), " values and ", sample.returns.size(), " returns for ",
              size, " tokens");
  }
}

void ValueLoss::add(const ResponseTokens& tokens, const TokenDerivatives& out) {
  const TrainSample& sample = tokens.sample;
  const double token_share = aggregation_.token_weight(sample);
  for (size_t i = 0; i < tokens.logprobs.size(); ++i) {
    const auto at = static_cast<size_t>(tokens.first) + i;
    const double weight = sample.weight(static_cast<int64_t>(at)), value = tokens.logprobs[i];
    out.d_logprob[i] = 0;
    if (weight == 0) continue;
    const double before = sample.values[at], target = sample.returns[at];
    const double bounded = std::clamp(value, before - cliprange_, before + cliprange_);
    const double plain = (value - target) * (value - target),
                 clipped = (bounded - target) * (bounded - target);
    const bool is_clipped = clipped > plain;
    loss_ += weight * token_share * std::max(plain, clipped) / 2;
    clipped_ += is_clipped ? weight / denominators_.tokens : 0;
    value_ += weight / denominators_.tokens * value;
    if (!is_clipped) out.d_logprob[i] = static_cast<float>(weight * token_share * (value - target));
  }
}

std::vector<std::pair<std::string, double>> ValueLoss::metrics(std::span<const double> sums) const {
  TLT_CHECK(sums.size() == 3);
  return {
      {"critic/vf_loss", sums[0]}, {"critic/vf_clipfrac", sums[1]}, {"critic/vpred_mean", sums[2]}};
}

}  // namespace tlt::train

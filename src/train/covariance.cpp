// SPDX-License-Identifier: Apache-2.0
#include "train/covariance.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/random.h"

namespace tlt::train {
namespace {

// The key of the random numbers: no seed of a run, so that the loss needs none.
constexpr uint64_t kCovarianceKey = 0xC0'7A'41'A2'CE;

struct CovarianceToken {
  size_t sample, position;
  double weight, logprob, advantage;
  bool is_clipped;
  double covariance = 0;
};

std::vector<CovarianceToken> tokens_of(const LossOptions& options,
                                       std::span<const TrainSample> batch,
                                       std::span<const std::vector<float>> logprobs) {
  std::vector<CovarianceToken> tokens;
  for (size_t i = 0; i < batch.size(); ++i) {
    const TrainSample& sample = batch[i];
    TLT_CHECK(std::ssize(logprobs[i]) == sample.response_size(), "sample ", sample.id, ": ",
              logprobs[i].size(), " logprobs for ", sample.response_size(), " tokens");
    for (size_t t = 0; t < logprobs[i].size(); ++t) {
      const double weight = sample.weight(static_cast<int64_t>(t)), logprob = logprobs[i][t],
                   advantage = sample.advantages[t];
      if (weight == 0) continue;
      const double ratio = std::exp(logprob - sample.rollout_logprobs[t]);
      const bool is_clipped = advantage > 0 ? ratio > 1 + options.clip_ratio_high
                                            : advantage < 0 && ratio < 1 - options.clip_ratio_low;
      tokens.push_back({.sample = i,
                        .position = t,
                        .weight = weight,
                        .logprob = logprob,
                        .advantage = advantage,
                        .is_clipped = is_clipped});
    }
  }
  return tokens;
}

void add_covariances(std::vector<CovarianceToken>& tokens) {
  double weight = 0, logprob = 0, advantage = 0;
  for (const CovarianceToken& token : tokens) {
    weight += token.weight;
    logprob += token.weight * token.logprob;
    advantage += token.weight * token.advantage;
  }
  for (CovarianceToken& token : tokens)
    token.covariance = (token.advantage - advantage / weight) * (token.logprob - logprob / weight);
}

size_t share_of(double ratio, size_t tokens) {
  return std::max<size_t>(1, static_cast<size_t>(ratio * static_cast<double>(tokens)));
}

}  // namespace

std::vector<std::vector<bool>> select_tokens(const LossOptions& options,
                                             std::span<const TrainSample> batch,
                                             std::span<const std::vector<float>> logprobs,
                                             int64_t step) {
  TLT_CHECK(batch.size() == logprobs.size());
  const PolicyLossOptions& how = options.policy_loss;
  std::vector<CovarianceToken> tokens = tokens_of(options, batch, logprobs);
  add_covariances(tokens);
  size_t count = 0;
  if (how.loss_mode == "clip_cov") {
    count = share_of(how.clip_cov_ratio, tokens.size());
    std::erase_if(tokens, [&](const CovarianceToken& token) {
      return token.is_clipped ||
             !(token.covariance > how.clip_cov_lb && token.covariance < how.clip_cov_ub);
    });
    RandomStream(kCovarianceKey, {.step = static_cast<uint32_t>(step)}).shuffle(tokens);
  } else {
    TLT_CHECK(how.loss_mode == "kl_cov", how.loss_mode);
    count = share_of(how.kl_cov_ratio, tokens.size());
    std::ranges::stable_sort(tokens, std::ranges::greater(), &CovarianceToken::covariance);
  }
  tokens.resize(std::min(count, tokens.size()));
  std::vector<std::vector<bool>> selected;
  for (const std::vector<float>& response : logprobs) selected.emplace_back(response.size());
  for (const CovarianceToken& token : tokens) selected[token.sample][token.position] = true;
  return selected;
}

}  // namespace tlt::train

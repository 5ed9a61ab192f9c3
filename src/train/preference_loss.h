// The loss of preference pairs: DPO and its variants, with TRL's names and formulas. A pair is two
// responses to a prompt, of which the first one was chosen.
//
//   lp(y)  = sum of the logprobs of the tokens of y that count
//   d      = lp(chosen) - lp(rejected) - (ref(chosen) - ref(rejected)),   x = beta d
//   e      = label_smoothing,   s = the logistic function
//
//   sigmoid   -(1 - e) log s(x) - e log s(-x)                             (DPO, eq. 7; cDPO: e > 0)
//   robust    (-(1 - e) log s(x) + e log s(-x)) / (1 - 2 e)               (Robust DPO)
//   hinge     max(0, 1 - x)                                               (RSO, SLiC)
//   ipo       (d - 1 / (2 beta))^2, with means over the tokens in place of sums     (IPO, eq. 17)
//
// The loss of a mini-batch is the mean over its pairs. All tokens of a response have one derivative,
// which depends on both responses, and these may be in different packs. So each optimizer step has
// two forward passes: the first gives the sums lp (see_batch()), from which the derivatives are
// exact numbers; the second, with the backward pass, uses them as weights of the tokens' logprobs.
// The first one costs a third more than none, and as much as a pass of a reference model would.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/loss_options.h"
#include "train/token_loss.h"

namespace tlt::train {

// lp of a response, from the logprobs of all its tokens, and how many tokens count.
struct ResponseLogprob {
  double sum = 0;
  double tokens = 0;
  double reference = 0;  // the sum under the reference policy
};
// Throws Error if there is not one logprob for each response token.
ResponseLogprob response_logprob(const TrainSample& sample, std::span<const float> logprobs);

struct PairLoss {
  double loss = 0;
  double d_chosen = 0, d_rejected = 0;  // derivatives by the logprob of each of their tokens
};
PairLoss pair_loss(const DpoOptions& options, const ResponseLogprob& chosen,
                   const ResponseLogprob& rejected);

// Means over pairs.
class PreferenceMeans {
 public:
  explicit PreferenceMeans(const DpoOptions& options) : options_(options) {}

  void add(const ResponseLogprob& chosen, const ResponseLogprob& rejected);

  // (name, value) with TRL's names: "loss", "rewards/accuracies" … REQUIRES: a pair was added.
  std::vector<std::pair<std::string, double>> metrics() const;

 private:
  const DpoOptions options_;
  double pairs_ = 0, loss_ = 0, accurate_ = 0;
  double chosen_reward_ = 0, rejected_reward_ = 0;
  double chosen_logprob_ = 0, rejected_logprob_ = 0;
};

class PreferenceLoss final : public TokenLoss {
 public:
  // `batch`: pairs, each chosen response before its rejected one; outlives this. Throws Error if
  // they are not an even number.
  PreferenceLoss(const DpoOptions& options, std::span<const TrainSample> batch);

  bool wants_batch() const override { return true; }
  void see_batch(std::span<const TrainSample> batch, std::span<const std::vector<float>> logprobs,
                 int64_t steps) override;
  // A pair beyond the hinge has no gradient.
  bool learns_from(const TrainSample& sample) const override { return slope_of(sample) != 0; }
  void add(const ResponseTokens& tokens, const TokenDerivatives& out) override;
  // The number of tokens that count: all other means are known before the second pass.
  std::vector<double> take_sums() override { return {std::exchange(tokens_, 0)}; }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums) const override;

 private:
  double slope_of(const TrainSample& sample) const;

  const DpoOptions options_;
  const std::span<const TrainSample> batch_;
  std::vector<double> slopes_;  // by sample: of the mini-batch's loss by each token's logprob
  PreferenceMeans means_;
  double tokens_ = 0;
};

}  // namespace tlt::train

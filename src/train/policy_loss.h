// The losses of a mini-batch with their slopes: PPO's clipped loss as in verl
// (verl/trainer/ppo/core_algos.py: compute_policy_loss_vanilla, kl_penalty, agg_loss), and the
// supervised loss.
//
//   d = clamp(lp - rollout, -20, 20)     ratio = exp(d)
//   m = max(-A ratio, -A clamp(ratio, 1 - low, 1 + high))      pg = A < 0 ? min(m, -A c) : m
//   loss = pg - entropy_coeff entropy + kl_loss_coef kl        each added up by loss_agg_mode
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/loss_options.h"
#include "train/token_loss.h"

namespace tlt::train {

class PolicyLoss final : public TokenLoss {
 public:
  // The samples of the whole mini-batch. Throws Error for one whose lists do not fit its response.
  PolicyLoss(const LossOptions& options, std::span<const TrainSample> batch);

  // Without KL and entropy terms nothing is learned where all advantages are 0: a group whose
  // samples are all right, or all wrong.
  bool learns_from(const TrainSample& sample) const override;
  void add(const TrainSample& sample, int64_t first, std::span<const float> logprobs,
           std::span<const float> entropies, std::span<float> d_logprob,
           std::span<float> d_entropy) override;
  std::vector<double> sums() const override;
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums) const override;

  // What a token of weight 1 of this sample counts in the loss.
  double token_weight(const TrainSample& sample) const;

 private:
  enum class Aggregation { kTokenMean, kTokenSum, kSequenceMean, kScaledSum };
  enum class KlType { kNone, kK1, kAbs, kK2, kK3 };
  struct Term {
    double value = 0;
    double slope = 0;  // by the logprob
  };
  // Already divided by the denominators of the whole mini-batch: the parts of all packs and workers
  // just add up.
  struct Sums {
    double pg_loss = 0, kl_loss = 0, entropy = 0, clipped = 0, clipped_lower = 0, ppo_kl = 0;
  };

  Term policy_term(double logprob, double rollout, double advantage, double mean_weight);
  Term kl_term(double logprob, double reference) const;

  const LossOptions options_;
  Aggregation aggregation_ = Aggregation::kTokenMean;
  KlType kl_type_ = KlType::kNone;
  double total_weight_ = 0;  // of all tokens
  double sequences_ = 0;     // that have a token that counts
  Sums sums_;
};

// The mean negative log-likelihood of the response tokens, weighted.
class SupervisedLoss final : public TokenLoss {
 public:
  explicit SupervisedLoss(std::span<const TrainSample> batch);

  bool learns_from(const TrainSample&) const override { return true; }
  void add(const TrainSample& sample, int64_t first, std::span<const float> logprobs,
           std::span<const float> entropies, std::span<float> d_logprob,
           std::span<float> d_entropy) override;
  std::vector<double> sums() const override { return {loss_, probability_}; }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums) const override;

 private:
  double total_weight_ = 0;
  double tokens_ = 0;
  double loss_ = 0;         // divided by total_weight_
  double probability_ = 0;  // mean over all tokens
};

}  // namespace tlt::train

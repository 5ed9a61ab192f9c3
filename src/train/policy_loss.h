// Losses of a mini-batch and their derivatives: policy losses as in verl
// (verl/trainer/ppo/core_algos.py: compute_policy_loss_*, kl_penalty, agg_loss), and the supervised
// loss. Per token, lp is its log probability and A its advantage:
//
//   d       = clamp(lp - rollout, -20, 20)
//   ratio   = exp(d)
//   bounded = clamp(ratio, 1 - low, 1 + high)
//
//   vanilla    m = max(-A ratio, -A bounded);  pg = A < 0 ? min(m, -A c) : m
//   cispo      pg = -A stop(bounded) lp                                      (MiniMax-M1, eq. 4)
//   gspo       vanilla without c, with the sequence's ratio
//              exp(min(10, mean (lp - rollout)))                             (GSPO, eq. 5 and 14)
//   geo_mean   pg = -(mean A) exp(mean bounded d), bounded d = A > 0 ? min(d, high) : max(d, -low),
//              means over the response, without the clamp to 20                        (GMPO)
//   sapo       pg = -A 4 / tau sigmoid(tau (ratio - 1)), tau = A > 0 ? tau_pos : tau_neg
//                                                                                         (SAPO)
//   clip_cov   vanilla without c and the clamp to 20; 0 for the tokens that covariance.h selects
//   kl_cov     pg = -A exp(lp - rollout); + ppo_kl_coef |lp - rollout| for the tokens that
//              covariance.h selects                                          (Entropy Mechanism)
//   gpg        pg = -A lp                                                    (GPG, eq. 6)
//   reinforce  pg = -A stop(min(exp(clamp(lp - rollout, -20, 20)), threshold)) lp, the loss of
//              algorithm.rollout_correction; rollout_is=sequence: of the sum of lp - rollout
//
//   loss = pg - entropy_coeff entropy + kl_loss_coef kl + coef D       each aggregated by
//                                                                      loss_agg_mode
//   D: the divergence from the teacher with distillation.loss_mode=reverse_kl or forward_kl
//      (teacher_kl.h)
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>

#include "train/aggregation.h"
#include "train/kl.h"
#include "train/loss_options.h"
#include "train/token_loss.h"

namespace tlt::train {

class PolicyLoss final : public TokenLoss {
 public:
  // `denominators`: those of the mini-batch, or any until complete() is called.
  PolicyLoss(const LossOptions& options, const Denominators& denominators);

  // Without KL, entropy and teacher a sample whose advantages are all 0 has no gradient: a group with
  // equal scores.
  bool learns_from(const TrainSample& sample) const override;
  bool wants_batch() const override { return options_.policy_loss.uses_covariance(); }
  void see_batch(std::span<const TrainSample> batch, std::span<const std::vector<float>> logprobs,
                 int64_t steps) override;
  bool wants_preview() const override {
    return mode_ == Mode::kGspo || mode_ == Mode::kGeoMean ||
           (mode_ == Mode::kReinforce && is_of_sequence_);
  }
  void preview(const TrainSample& sample, int64_t first, std::span<const float> logprobs) override;
  void add(const ResponseTokens& tokens, const TokenDerivatives& out) override;
  void complete(std::span<const TrainSample> batch) override;
  double gradient_scale() const override { return gradient_scale_; }
  std::vector<double> take_sums() override;
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums) const override;

  // The factor of a token of weight 1 of this sample in the loss.
  double token_weight(const TrainSample& sample) const { return aggregation_.token_weight(sample); }

 private:
  enum class Mode { kVanilla, kGspo, kGeoMean, kSapo, kCispo, kClipCov, kKlCov, kGpg, kReinforce };
  struct Term {
    double value = 0;
    double slope = 0;  // derivative by the logprob
  };
  // Divided by the denominators already: the sums of all packs and workers are just added.
  struct Sums {
    double pg_loss = 0, kl_loss = 0, entropy = 0, clipped = 0, clipped_lower = 0, ppo_kl = 0;
    // Importance weights: mean, share above the threshold, and the mean and mean square of those
    // between 1 / threshold and threshold.
    double weight = 0, truncated = 0, bounded = 0, bounded_square = 0;
    double teacher_loss = 0, teacher_kl = 0;  // aggregated; mean over tokens
  };

  // Values of a token; mean_weight: its weight in the means of the metrics.
  struct Token {
    double logprob, rollout, advantage, mean_weight;
    bool is_selected;  // by covariance.h
  };
  Term policy_term(const TrainSample& sample, const Token& token);
  Term vanilla_term(const Token& token);
  Term gspo_term(const TrainSample& sample, const Token& token);
  Term geo_mean_term(const TrainSample& sample, const Token& token);
  Term sapo_term(const Token& token);
  Term cispo_term(const Token& token);
  Term clip_cov_term(const Token& token);
  Term kl_cov_term(const Token& token);
  Term reinforce_term(const TrainSample& sample, const Token& token);

  const LossOptions options_;
  Mode mode_ = Mode::kVanilla;
  bool is_of_sequence_ = false;  // the importance weight of kReinforce
  std::optional<KlType> kl_type_;
  // Terms of a sequence's ratio: the weighted sums of lp - rollout (geo_mean: bounded) and of the
  // advantages, and the sum of the weights, for samples of the pack.
  struct Sequence {
    double difference = 0, advantage = 0, weight = 0;
  };
  double bounded_difference(const Token& token) const;
  std::unordered_map<const TrainSample*, Sequence> sequence_of_;
  std::unordered_map<const TrainSample*, std::vector<bool>> selected_of_;  // of the mini-batch
  const Denominators denominators_;
  const Aggregation aggregation_;
  double gradient_scale_ = 1, token_scale_ = 1;  // of derivatives and of means over tokens
  Sums sums_;
};

// The mean over the response tokens, weighted, of the negative log-likelihood, plus coef times the
// divergence from the teacher if there is one.
class SupervisedLoss final : public TokenLoss {
 public:
  SupervisedLoss(std::span<const TrainSample> batch, const DistillationOptions& distillation);

  bool learns_from(const TrainSample&) const override { return true; }
  void add(const ResponseTokens& tokens, const TokenDerivatives& out) override;
  std::vector<double> take_sums() override {
    return {std::exchange(loss_, 0), std::exchange(probability_, 0), std::exchange(teacher_kl_, 0)};
  }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums) const override;

 private:
  const DistillationOptions distillation_;
  const double total_weight_;
  double loss_ = 0;         // divided by total_weight_
  double probability_ = 0;  // mean, by the weights of the loss
  double teacher_kl_ = 0;   // the same
};

}  // namespace tlt::train

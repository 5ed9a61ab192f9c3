// Advantages: computes each response's advantage over a baseline, with verl's estimators
// (verl/trainer/ppo/core_algos.py: compute_*_outcome_advantage).
//
//   r = score - kl_coef sum of the tokens' KL              with use_kl_in_reward
//   n, mean, deviation: number, mean and standard deviation (divisor n - 1) of a group's r
//
//   grpo                         (r - mean) / (deviation + 1e-6)       (DeepSeekMath, eq. 3)
//     norm_adv_by_std_in_grpo=false   r - mean                         (Dr. GRPO)
//   rloo                         (r - mean) n / (n - 1)                (RLOO, eq. 6)
//   opo                          r - sum (length r) / sum length       (OPO, eq. 8)
//   gpg                          (r - mean) samples / samples with r != 0, both of the whole step
//                                                                      (GPG, eq. 6)
//   reinforce_plus_plus          whitened: discounted future rewards of each token
//   reinforce_plus_plus_baseline whitened: r - mean
//
// Whitened: the mean over all tokens of the step is subtracted and the result divided by their
// standard deviation. A group of one sample has mean 0 and deviation 1.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/options.h"
#include "rl/group_filter.h"
#include "train/loss_options.h"
#include "train/sample.h"

namespace tlt::rl {

struct KlControlOptions {
  std::string type = "fixed";
  double kl_coef = 0.001;

  void visit(auto& v) {
    v(type, "type", Affects::kResults, "fixed: kl_coef is constant.");
    v(kl_coef, "kl_coef", Affects::kResults, "Weight of the KL divergence in the reward.");
  }
};

struct AlgorithmOptions {
  std::string adv_estimator = "grpo";
  bool norm_adv_by_std_in_grpo = true;
  double gamma = 1.0;
  bool use_kl_in_reward = false;
  std::string kl_penalty = "kl";
  KlControlOptions kl_ctrl;
  FilterGroupsOptions filter_groups;
  train::RolloutCorrectionOptions rollout_correction;  // for the trainer's loss

  void visit(auto& v) {
    v(adv_estimator, "adv_estimator", Affects::kResults,
      "How rewards become advantages: grpo, rloo, opo, gpg, reinforce_plus_plus or "
      "reinforce_plus_plus_baseline.");
    v(norm_adv_by_std_in_grpo, "norm_adv_by_std_in_grpo", Affects::kResults,
      "Divide by the group's standard deviation (GRPO); false: as in Dr. GRPO.");
    v(gamma, "gamma", Affects::kResults, "Discount factor per token of reinforce_plus_plus.");
    v(use_kl_in_reward, "use_kl_in_reward", Affects::kResults,
      "Subtract the KL divergence from the reference policy from the reward.");
    v(kl_penalty, "kl_penalty", Affects::kResults,
      "Estimator of that divergence: kl (k1), abs, mse (k2) or low_var_kl (k3).");
    v.group("kl_ctrl", kl_ctrl);
    v.group("filter_groups", filter_groups);
    v.group("rollout_correction", rollout_correction);
  }
  void check() const;
};

// Computes the advantages of `samples` from their scores. Each group is `group_size` consecutive
// samples. Returns the rewards: the scores minus the KL penalty.
// REQUIRES: with use_kl_in_reward every sample has rollout and reference logprobs.
std::vector<double> add_advantages(const AlgorithmOptions& options, std::span<const double> scores,
                                   int64_t group_size, std::span<train::TrainSample> samples);

}  // namespace tlt::rl

// AlgorithmOptions: the section `algorithm` of the options: advantages (rl/advantages.h), the KL
// divergence in the reward, dynamic sampling (rl/group_filter.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"
#include "train/loss_options.h"

namespace tlt::run {

struct FilterGroupsOptions {
  bool enable = false;
  std::string metric = "acc";
  int64_t max_num_gen_batches = 0;

  void visit(auto& v) {
    v(enable, "enable", Affects::kResults,
      "Dynamic sampling (DAPO): drop groups whose samples all have the same value of the metric, "
      "and "
      "roll out more prompts instead.");
    v(metric, "metric", Affects::kResults,
      "acc: the reward's extra of this name, or the score without format, length and repetition; "
      "score, seq_reward or seq_final_reward: the score.");
    v(max_num_gen_batches, "max_num_gen_batches", Affects::kResults,
      "Generation batches per step; the run ends with an error if they give too few groups; 0: no "
      "limit.");
  }
  void check() const;
};

struct KlControlOptions {
  double kl_coef = 0.001;

  void visit(auto& v) {
    v(kl_coef, "kl_coef", Affects::kResults, "Weight of the KL divergence in the reward.");
  }
};

struct AlgorithmOptions {
  std::string adv_estimator = "grpo";
  bool norm_adv_by_std_in_grpo = true;
  int64_t pass_k = 0;
  double gamma = 1.0;
  double lam = 1.0;
  bool use_kl_in_reward = false;
  std::string kl_penalty = "kl";
  KlControlOptions kl_ctrl;
  FilterGroupsOptions filter_groups;
  train::RolloutCorrectionOptions rollout_correction;  // for the trainer's loss

  void visit(auto& v) {
    v(adv_estimator, "adv_estimator", Affects::kResults,
      "How rewards become advantages: grpo, rloo, opo, gpg, max_rl, grpo_passk, pass_at_k, "
      "reinforce_plus_plus, reinforce_plus_plus_baseline, remax or gae (PPO with a critic).");
    v(norm_adv_by_std_in_grpo, "norm_adv_by_std_in_grpo", Affects::kResults,
      "Divide by the group's standard deviation (GRPO); false: as in Dr. GRPO. Also of grpo_passk "
      "and pass_at_k.");
    v(pass_k, "pass_k", Affects::kResults,
      "Number of responses, of rollout.n, whose best one pass_at_k trains; 0: not set.");
    v(gamma, "gamma", Affects::kResults,
      "Discount of later rewards, for gae and reinforce_plus_plus.");
    v(lam, "lam", Affects::kResults,
      "Lambda of gae: 1: the return minus the value; 0: the next value's difference only.");
    v(use_kl_in_reward, "use_kl_in_reward", Affects::kResults,
      "Subtract the KL divergence from the reference policy from the reward.");
    v(kl_penalty, "kl_penalty", Affects::kResults,
      "Estimator of that divergence: kl (k1), abs, mse (k2) or low_var_kl (k3).");
    v.group("kl_ctrl", kl_ctrl);
    v.group("filter_groups", filter_groups);
    v.group("rollout_correction", rollout_correction);
  }
  // gae needs a critic, whose options are the section `critic` (run_options.h).
  bool has_critic() const { return adv_estimator == "gae"; }
  // remax compares with a response to the same prompt that is decoded greedily.
  bool has_greedy_baseline() const { return adv_estimator == "remax"; }
  // `samples`: rollout.n.
  void check(int64_t samples) const;

 private:
  void check_discounts() const;
};

}  // namespace tlt::run

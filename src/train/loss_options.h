// LossOptions: the policy loss, with verl's names.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace tlt::train {

struct PolicyLossOptions {
  std::string loss_mode = "vanilla";
  // Not options: the paper's values, which verl has too.
  double clip_cov_ratio = 0.0002;
  double clip_cov_lb = 1.0;
  double clip_cov_ub = 5.0;
  double kl_cov_ratio = 0.0002;
  double ppo_kl_coef = 0.1;

  void visit(auto& v) {
    v(loss_mode, "loss_mode", Affects::kResults,
      "Policy loss: vanilla (PPO's clipped loss), gspo, cispo, gpg, sapo, geo_mean (GMPO), "
      "clip_cov, kl_cov or reinforce (truncated importance weight times logprob, with "
      "algorithm.rollout_correction).");
  }
  bool is_reinforce() const { return loss_mode == "reinforce"; }
  // The loss depends on the covariance of advantages and logprobs over the mini-batch.
  bool uses_covariance() const { return loss_mode == "clip_cov" || loss_mode == "kl_cov"; }
  void check() const;
};

// verl's algorithm.rollout_correction, listed there (rl/advantages.h). The rollout's logprobs equal
// the trainer's bit for bit, so the correction of verl's decoupled mode (bypass_mode=false) is a
// factor of exactly 1 and is not computed. The one of the loss mode reinforce (verl's
// bypass_mode=true with loss_type=reinforce) is computed, since later mini-batches and epochs train
// on rollouts of older weights.
struct RolloutCorrectionOptions {
  std::string rollout_is = "none";
  double rollout_is_threshold = 2.0;

  void visit(auto& v) {
    v(rollout_is, "rollout_is", Affects::kResults,
      "Importance weights of actor.policy_loss.loss_mode=reinforce: token, sequence (product over "
      "its tokens) or none.");
    v(rollout_is_threshold, "rollout_is_threshold", Affects::kResults,
      "Upper bound of the importance weights (truncated importance sampling, TIS).");
  }
  void check() const;
};

// Distillation (docs/distillation.md): a teacher scores the student's own responses, in `tlt sft`
// the given ones.
struct DistillationOptions {
  std::string teacher;
  std::string loss_mode = "k1";
  int64_t top_k = 0;
  double coef = 1.0;
  bool use_task_rewards = true;

  void visit(auto& v) {
    v(teacher, "teacher", Affects::kResults,
      "Teacher with the same tokens: Hugging Face folder, or http(s)://host:port/v1 of a server "
      "with prompt_logprobs; empty: no distillation.");
    v(loss_mode, "loss_mode", Affects::kResults,
      "k1, k3: estimates from the sampled tokens, added to their advantages; reverse_kl, "
      "forward_kl: exact divergences, added to the loss.");
    v(top_k, "top_k", Affects::kResults,
      "reverse_kl and forward_kl over the teacher's k most probable tokens and all others as one; "
      "0: every token.");
    v(coef, "coef", Affects::kResults, "Weight of the divergence from the teacher.");
    v(use_task_rewards, "use_task_rewards", Affects::kResults,
      "false: rewards are reported, but not trained on.");
  }
  bool is_on() const { return !teacher.empty(); }
  // Estimated from the sampled tokens: k1, k3.
  bool is_estimate() const { return is_on() && !has_exact_mode(); }
  bool is_exact() const { return is_on() && has_exact_mode(); }
  bool is_forward() const { return loss_mode == "forward_kl"; }
  // The teacher is the URL of a server.
  bool is_remote() const {
    return teacher.starts_with("http://") || teacher.starts_with("https://");
  }
  void check() const;

 private:
  bool has_exact_mode() const { return loss_mode == "reverse_kl" || is_forward(); }
};

// Preference optimization (`tlt dpo`), with TRL's names (preference_loss.h).
struct DpoOptions {
  double beta = 0.1;
  std::string loss_type = "sigmoid";
  double label_smoothing = 0;

  void visit(auto& v) {
    v(beta, "beta", Affects::kResults,
      "tlt dpo: how close the policy stays to the one it starts from; a larger value keeps it "
      "closer. With loss_type=ipo: the paper's tau.");
    v(loss_type, "loss_type", Affects::kResults,
      "Loss of a preference pair: sigmoid (DPO), robust, hinge or ipo, as in TRL.");
    v(label_smoothing, "label_smoothing", Affects::kResults,
      "Share of pairs whose preference is assumed to be the wrong way round, from 0 to below 0.5: "
      "cDPO with sigmoid, unbiased with robust.");
  }
  void check() const;
};

struct LossOptions {
  PolicyLossOptions policy_loss;
  DistillationOptions distillation;             // options of the run, not listed here
  DpoOptions dpo;                               // the same
  RolloutCorrectionOptions rollout_correction;  // an option of algorithm, not listed here
  double cliprange_value = 0.5;                 // an option of critic, not listed here
  double clip_ratio_low = 0.2;
  double clip_ratio_high = 0.2;
  double clip_ratio_c = 3.0;
  double tau_pos = 1.0;  // this and the next are not options: SAPO's values
  double tau_neg = 1.05;
  std::string loss_agg_mode = "token-mean";
  double loss_scale_factor = 0;  // no option: data.max_response_length, as Dr. GRPO has it
  bool use_kl_loss = false;
  double kl_loss_coef = 0.001;
  std::string kl_loss_type = "low_var_kl";
  double entropy_coeff = 0;

  bool has_importance_weights() const {
    return policy_loss.is_reinforce() && rollout_correction.rollout_is != "none";
  }
  void visit(auto& v) {
    v.group("policy_loss", policy_loss);
    v(clip_ratio_low, "clip_ratio_low", Affects::kResults,
      "Lower clip bound of the probability ratio: 1 - this.");
    v(clip_ratio_high, "clip_ratio_high", Affects::kResults,
      "Upper clip bound of the probability ratio: 1 + this.");
    v(clip_ratio_c, "clip_ratio_c", Affects::kResults,
      "Dual clip: bound of the ratio if the advantage is negative.");
    v(loss_agg_mode, "loss_agg_mode", Affects::kResults,
      "Aggregation over tokens: token-mean, seq-mean-token-sum, seq-mean-token-mean or "
      "seq-mean-token-sum-norm (divided by data.max_response_length).");
    v(use_kl_loss, "use_kl_loss", Affects::kResults,
      "Add the KL divergence from the reference policy to the loss.");
    v(kl_loss_coef, "kl_loss_coef", Affects::kResults, "Weight of the KL loss.");
    v(kl_loss_type, "kl_loss_type", Affects::kResults,
      "Estimator of the KL loss: kl (k1), abs, mse (k2) or low_var_kl (k3).");
    v(entropy_coeff, "entropy_coeff", Affects::kResults,
      "Weight of the entropy, which is subtracted from the loss.");
  }
  void check() const;
};

}  // namespace tlt::train

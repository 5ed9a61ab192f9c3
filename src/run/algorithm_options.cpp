// SPDX-License-Identifier: Apache-2.0
#include "run/algorithm_options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "train/kl.h"

namespace tlt::run {
namespace {

constexpr std::array<std::string_view, 11> kEstimators = {"grpo",
                                                          "rloo",
                                                          "opo",
                                                          "gpg",
                                                          "max_rl",
                                                          "grpo_passk",
                                                          "pass_at_k",
                                                          "reinforce_plus_plus",
                                                          "reinforce_plus_plus_baseline",
                                                          "remax",
                                                          "gae"};
constexpr std::array<std::string_view, 4> kMetrics = {"acc", "score", "seq_reward",
                                                      "seq_final_reward"};

}  // namespace

void FilterGroupsOptions::check() const {
  TLT_CHECK_INPUT(std::ranges::find(kMetrics, metric) != kMetrics.end(),
                  "algorithm.filter_groups.metric is '", metric,
                  "'; use acc, score, seq_reward or seq_final_reward");
  TLT_CHECK_INPUT(max_num_gen_batches >= 0, "algorithm.filter_groups.max_num_gen_batches is ",
                  max_num_gen_batches, "; give 0 for no limit, or a number of batches");
}

void AlgorithmOptions::check_discounts() const {
  TLT_CHECK_INPUT(gamma >= 0 && gamma <= 1 && lam >= 0 && lam <= 1, "algorithm.gamma is ", gamma,
                  " and algorithm.lam ", lam, "; give numbers from 0 to 1");
  TLT_CHECK_INPUT(gamma == 1 || has_critic() || adv_estimator == "reinforce_plus_plus",
                  "algorithm.gamma has no effect with algorithm.adv_estimator=", adv_estimator,
                  ", whose reward is of the whole response; leave it out, or set "
                  "algorithm.adv_estimator=gae or reinforce_plus_plus");
  TLT_CHECK_INPUT(lam == 1 || has_critic(),
                  "algorithm.lam has no effect with algorithm.adv_estimator=", adv_estimator,
                  "; leave it out, or set algorithm.adv_estimator=gae");
  TLT_CHECK_INPUT(norm_adv_by_std_in_grpo || !(has_critic() || has_greedy_baseline()),
                  "algorithm.norm_adv_by_std_in_grpo has no effect with algorithm.adv_estimator=",
                  adv_estimator, "; leave it out, or set algorithm.adv_estimator=grpo");
}

void AlgorithmOptions::check(int64_t samples) const {
  std::string names;
  for (const std::string_view name : kEstimators) {
    if (!names.empty()) names += name == kEstimators.back() ? " or " : ", ";
    names += name;
  }
  TLT_CHECK_INPUT(std::ranges::find(kEstimators, adv_estimator) != kEstimators.end(),
                  "algorithm.adv_estimator is '", adv_estimator, "'; use ", names);
  const bool compares = adv_estimator == "max_rl" || adv_estimator == "grpo_passk";
  TLT_CHECK_INPUT(!compares || samples >= 2, "algorithm.adv_estimator=", adv_estimator,
                  " compares the responses to a prompt, and rollout.n is ", samples,
                  "; give at least 2");
  const bool is_pass_at_k = adv_estimator == "pass_at_k";
  TLT_CHECK_INPUT(is_pass_at_k || pass_k == 0,
                  "algorithm.pass_k has no effect with "
                  "algorithm.adv_estimator=",
                  adv_estimator, "; leave it out, or set algorithm.adv_estimator=pass_at_k");
  TLT_CHECK_INPUT(!is_pass_at_k || (pass_k >= 1 && pass_k < samples), "algorithm.pass_k is ",
                  pass_k, " and rollout.n ", samples,
                  "; pass_at_k needs a pass_k from 1 to rollout.n - 1, since every choice of all "
                  "responses has the same best one");
  check_discounts();
  train::parse_kl_type(kl_penalty, "algorithm.kl_penalty");
  TLT_CHECK_INPUT(kl_ctrl.kl_coef >= 0, "algorithm.kl_ctrl.kl_coef is ", kl_ctrl.kl_coef,
                  "; use 0 or more");
  filter_groups.check();
  rollout_correction.check();
  TLT_CHECK_INPUT(
      !filter_groups.enable || filter_groups.metric != "seq_final_reward" || !use_kl_in_reward,
      "algorithm.filter_groups.metric=seq_final_reward includes the KL divergence, which "
      "differs in every response, so no group would be filtered out; use seq_reward");
}

}  // namespace tlt::run

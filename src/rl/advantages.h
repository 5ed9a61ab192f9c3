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
//   max_rl                       (r - mean) / mean; 0 if mean <= 0                      (MaxRL)
//   grpo_passk                   of the best response (r - second best r) / (deviation + 1e-6), of
//                                the others 0                      (inference-time objectives)
//   pass_at_k                    (b - mean b) / (deviation of b + 1e-6), b: the best r of pass_k of
//                                the group's responses; mean and deviation are over all choices of
//                                pass_k, and b of a response is the mean over those with it
//                                                                           (Pass@k Training)
//     norm_adv_by_std_in_grpo=false   the last two without the division
//   reinforce_plus_plus          whitened: discounted future rewards of each token
//   reinforce_plus_plus_baseline whitened: r - mean
//   remax                        of each token: its future rewards - b, b: the score of the response
//                                that was decoded greedily              (ReMax, algorithm 1)
//   gae                          whitened: A_t = delta_t + gamma lam A_t+1,
//                                delta_t = reward_t + gamma V_t+1 - V_t               (GAE, eq. 16)
//                                V: the critic's values, 0 after the last token; the critic learns
//                                from the returns A_t + V_t, with A_t before the whitening. Tokens
//                                of weight 0, which were not sampled, are passed over: t + 1 is the
//                                next sampled token
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
#include <vector>

#include "run/algorithm_options.h"
#include "train/loss_options.h"
#include "train/sample.h"

namespace tlt::rl {

// Computes the advantages of `samples` from their scores. Each group is `group_size` consecutive
// samples. Returns the rewards: the scores minus the KL penalty. gae also sets the samples' returns.
// `baselines`: with remax the score of each group's greedy response.
// REQUIRES: with use_kl_in_reward every sample has rollout and reference logprobs, with gae values.
std::vector<double> add_advantages(const run::AlgorithmOptions& options,
                                   std::span<const double> scores, int64_t group_size,
                                   std::span<train::TrainSample> samples,
                                   std::span<const double> baselines = {});

// Adds the divergence from the teacher to the advantages of add_advantages(), and first sets them
// to 0 without use_task_rewards. With d_t = log teacher_t - log rollout_t
//   k1   A_t = A_t + coef d_t                   (Thinking Machines, "On-Policy Distillation")
//   k3   A_t = A_t + coef (exp(d_t) - 1)        (J. Schulman, "Approximating KL divergence")
// k1 is the negative estimate as a reward. k3 is the negative derivative of exp(d_t) - d_t - 1 by the
// student's logprob, so that the policy gradient is that of the estimate as a loss, as verl
// recommends k3 (use_policy_gradient=false): in expectation that of KL(teacher || student). As a
// reward k3 would have the gradient of KL(student || teacher) - KL(teacher || student), which is 0 to
// first order near the teacher. With the limits of train/kl.h.
// REQUIRES: with k1 and k3 every sample's reference logprobs are the teacher's.
void add_teacher(const train::DistillationOptions& options, std::span<train::TrainSample> samples);

// The mean over all sampled tokens of the estimate (k1 or k3) of KL(student || teacher).
double mean_teacher_kl(const train::DistillationOptions& options,
                       std::span<const train::TrainSample> samples);

}  // namespace tlt::rl

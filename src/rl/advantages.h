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
#include <vector>

#include "run/algorithm_options.h"
#include "train/sample.h"

namespace tlt::rl {

// Computes the advantages of `samples` from their scores. Each group is `group_size` consecutive
// samples. Returns the rewards: the scores minus the KL penalty.
// REQUIRES: with use_kl_in_reward every sample has rollout and reference logprobs.
std::vector<double> add_advantages(const run::AlgorithmOptions& options,
                                   std::span<const double> scores, int64_t group_size,
                                   std::span<train::TrainSample> samples);

}  // namespace tlt::rl

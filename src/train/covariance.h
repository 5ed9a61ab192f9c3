// Selects the tokens of a mini-batch that a policy loss treats by their covariance of advantage and
// logprob, as in verl (compute_policy_loss_clip_cov, compute_policy_loss_kl_cov). A large one marks
// a token whose update lowers the policy's entropy most (Entropy Mechanism).
//
//   cov       = (A - mean A) (lp - mean lp)       means over the tokens of the mini-batch
//   clip_cov  max(1, floor(clip_cov_ratio tokens)) tokens, at random, of those with
//             clip_cov_lb < cov < clip_cov_ub whose ratio the loss does not clip
//   kl_cov    the max(1, floor(kl_cov_ratio tokens)) tokens of the largest cov; of equal ones those
//             that come first
//
// verl takes the means over a micro-batch, which is whatever fits into memory; here they are those
// of the whole mini-batch, so packs and workers change nothing.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/loss_options.h"
#include "train/sample.h"

namespace tlt::train {

// Whether each response token is selected, by sample. `logprobs`: of the response tokens under the
// present weights, by sample. `step` numbers the optimizer steps of the run: each has other random
// numbers, the same on every worker.
// REQUIRES: options.policy_loss.uses_covariance().
std::vector<std::vector<bool>> select_tokens(const LossOptions& options,
                                             std::span<const TrainSample> batch,
                                             std::span<const std::vector<float>> logprobs,
                                             int64_t step);

}  // namespace tlt::train

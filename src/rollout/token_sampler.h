// TokenSampler: from hidden rows to tokens: the head, and one random number for each token by its
// place.
//
// Owns       buffers for the logits of a bounded number of rows; more rows go through them in
// turns. Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "model/policy_model.h"
#include "rollout/step_plan.h"

namespace tlt::rollout {

class TokenSampler {
 public:
  // Borrows the model. `max_rows`: tokens usually chosen at once.
  TokenSampler(const model::PolicyModel& model, int64_t max_rows);

  // Result i is the token of draws[i], chosen from row draws[i].row of hidden [T, D]; valid until
  // the next call.
  std::span<const ops::Sampled> sample(const at::Tensor& hidden, std::span<const Draw> draws);

 private:
  void sample_some(const at::Tensor& hidden, std::span<const Draw> draws,
                   std::span<ops::Sampled> sampled);

  const model::PolicyModel& model_;
  at::Tensor hidden_;  // [R, D]
  at::Tensor logits_;  // [R, V] f32
  std::vector<int64_t> rows_;
  std::vector<ops::SamplingRule> rules_;
  std::vector<double> uniforms_;
  std::vector<ops::Sampled> sampled_;
};

}  // namespace tlt::rollout

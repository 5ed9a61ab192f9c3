// AdamW (Loshchilov & Hutter) as torch.optim.AdamW computes it, with float32 master weights: the
// model holds them rounded to its compute type.
//
// Owns       master weights and both moments, float32 on the CPU (12 bytes for each parameter).
// Borrows    the parameters, whose weights step() writes: a policy's or a drafter's.
// Not here   the learning rate (schedule.h); the gradient (gradient_sum.h).
// Threading  engine thread only; uses the device's pool. The same bits for any number of threads.
//
//   AdamW optimizer(model.parameters(), model.device(), options);   // starts from the weights
//   there const double norm = optimizer.step(gradients, learning_rate);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "model/policy_model.h"
#include "train/schedule.h"

namespace tlt::train {

// 2-norm over all parameters, added up in a fixed order.
double gradient_norm(const Device& device, const model::Gradients& gradients);

class AdamW {
 public:
  // REQUIRES: `parameters` outlives the optimizer.
  AdamW(const std::vector<model::Parameter>& parameters, const Device& device,
        const OptimOptions& options);
  AdamW(const model::PolicyModel& model, const OptimOptions& options)
      : AdamW(model.parameters(), model.device(), options) {}

  // One step of at most clip_grad; writes the weights. Returns the gradient's norm before clipping.
  double step(const model::Gradients& gradients, double learning_rate);
  int64_t steps() const { return steps_; }

  // (name, tensor) of all master weights and moments: the optimizer's own memory, not a copy.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  // Takes over a state() after `steps` steps and writes the weights. InputError when it is that of
  // another model.
  void load(const std::vector<std::pair<std::string, at::Tensor>>& state, int64_t steps);

 private:
  struct State {
    at::Tensor master, average, square;  // of one parameter
  };

  const std::vector<model::Parameter>& parameters_;
  const Device device_;
  const OptimOptions options_;
  std::vector<State> states_;  // in the order of the parameters
  int64_t steps_ = 0;
};

}  // namespace tlt::train

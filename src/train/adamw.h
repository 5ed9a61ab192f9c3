// AdamW (Loshchilov & Hutter) as torch.optim.AdamW computes it, with float32 master weights: the
// model holds them rounded to its compute type.
//
// Owns       master weights and both moments, float32 on the CPU (12 bytes per parameter); where
//            the workers share them, a part of them (shards.h).
// Borrows    the parameters, whose weights step() writes: a policy's or a draft model's; the
//            workers' collectives, to share the state.
// Not here   the learning rate (schedule.h); the gradient (gradient_sum.h).
// Threading  engine thread only; uses the device's pool. The same bits for any number of threads,
//            and of workers that share the state.
//
//   AdamW optimizer(model.parameters(), model.device(), options);  // starts from their weights
//   const double norm = optimizer.step(gradients, learning_rate);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/comm.h"
#include "model/policy_model.h"
#include "model/safetensors.h"
#include "train/chunks.h"
#include "train/schedule.h"
#include "train/shards.h"

namespace tlt::train {

// 2-norm over all parameters, added up in a fixed order.
double gradient_norm(const Device& device, const model::Gradients& gradients);
// Its square in parts: adds the squares of `values`, float32 and contiguous. The sum is the same
// bits however a tensor is cut, as long as the parts are multiples of kChunk (chunks.h).
void add_squares(const Device& device, const at::Tensor& values, double& total);

class AdamW {
 public:
  // sharers: the workers of which each keeps a share of the state and updates its part of the
  // weights; all of them are given the same gradients. Null: all of it is here.
  // REQUIRES: `parameters` and `sharers` outlive the optimizer.
  AdamW(const std::vector<model::Parameter>& parameters, const Device& device,
        const OptimOptions& options, cluster::Comm* sharers = nullptr);
  AdamW(const model::PolicyModel& model, const OptimOptions& options)
      : AdamW(model.parameters(), model.device(), options) {}

  // One step of at most clip_grad; writes the weights. Returns the gradient's norm before clipping.
  // Those who share the state call it together.
  double step(const model::Gradients& gradients, double learning_rate);
  int64_t steps() const { return steps_; }  // that have ended

  // The same in parts, for who must be able to stop for a while in between:
  //   begin_step(gradient_norm(…), rate); while (try_update(gradients, elements)) …; end_step();
  // Until then weights and state() are half those of before.
  void begin_step(double norm, double learning_rate);
  // Updates about `elements` numbers (whole rows); false: none was left.
  [[nodiscard]] bool try_update(const model::Gradients& gradients, int64_t elements);
  // Those who share the state call it together: each is given the weights the others have updated.
  void end_step();
  bool is_in_step() const { return place_.has_value(); }

  bool is_shared() const { return sharers_ != nullptr; }
  int64_t bytes() const;  // of the state that is kept here

  // (name, tensor) of all master weights and moments: the optimizer's own memory, not a copy.
  // REQUIRES: it is not shared.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  // A copy of state(), the same however many share it. Those who do call it together; the first of
  // them is given the copy, the others nothing.
  std::vector<model::TensorSource> snapshot() const;
  // Takes over a state() after `steps` steps and writes the weights; of a shared one each worker
  // keeps its part. InputError when it is that of another model; then nothing has changed.
  void load(const std::vector<std::pair<std::string, at::Tensor>>& state, int64_t steps);
  // The same, with one of its tensors at a time in memory.
  void load(const std::vector<model::TensorSource>& state, int64_t steps);

 private:
  struct State {
    RowRange range;                      // of one parameter: the rows that are kept here
    at::Tensor master, average, square;  // their values
  };
  struct Kind {
    const char* prefix;  // of the name in state()
    at::Tensor State::*tensor;
  };
  static const Kind kKinds[3];
  // The numbers of one step that are the same for every element.
  struct Coefficients {
    float clip = 1;  // what the gradient is multiplied by
    float kept = 1;  // 1 - lr * weight decay, where it decays
    float beta1 = 0, beta2 = 0, epsilon = 0;
    float step_size = 0;     // lr / (1 - beta1^t)
    float square_scale = 0;  // sqrt(1 - beta2^t)
  };
  static void update_range(const Coefficients& c, const float* gradients, float* master,
                           float* average, float* square, int64_t first, int64_t last);
  void update(const model::Gradients& gradients, size_t parameter, int64_t first, int64_t last);
  void exchange_weights() const;
  at::Tensor gather(size_t parameter, const Kind& kind) const;

  const std::vector<model::Parameter>& parameters_;
  const Device device_;
  const OptimOptions options_;
  cluster::Comm* const sharers_;  // null: nobody
  const Shards shards_;
  std::vector<State> states_;  // in the order of the parameters
  int64_t steps_ = 0;
  Coefficients step_;           // of the step that was begun
  std::optional<Place> place_;  // how far it is; none: it has ended
};

}  // namespace tlt::train

// Optimizer: AdamW (Loshchilov & Hutter) as in torch.optim.AdamW, or Muon (muon.h) for the matrices
// of the layers and AdamW for the rest, with float32 master weights: the model holds them rounded to
// its compute type. Of another device gradients and weights are copied in parts, each while the host
// works on another one.
//
// Owns       master weights and both moments, float32 on the CPU (12 bytes per parameter; 8 for
//            those of Muon, which has one momentum); if the workers share the state, one part of it
//            (shards.h), and in a tensor parallel group that of the rank's part of the model.
// Borrows    the parameters, whose weights step() writes: a policy's or a draft model's; the
//            workers' collectives, to share the state; the rank's part of the model.
// Not here   the learning rate (schedule.h); the gradient (gradient_sum.h).
// Threading  engine thread only; uses the device's pool. The result is the same, bit for bit, for
//            any number of threads and of workers that share the state.
//
//   Optimizer optimizer(model.parameters(), model.device(), options);  // starts from their weights
//   const double norm = optimizer.step(gradients, learning_rate);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/comm.h"
#include "model/policy_model.h"
#include "model/policy_shard.h"
#include "model/safetensors.h"
#include "runtime/pinned_copies.h"
#include "train/chunks.h"
#include "train/gradient_view.h"
#include "train/schedule.h"
#include "train/shards.h"

namespace tlt::train {

// The sum of the squares of each chunk (chunks.h) of `values`, float32 and contiguous.
void sum_squares(const Device& device, const at::Tensor& values, std::span<double> sums);

// The squared 2-norm in parts: adds the squares of `values`, float32 and contiguous, to `total`. The
// result is the same, bit for bit, for any split of a tensor into multiples of kChunk.
void add_squares(const Device& device, const at::Tensor& values, double& total);

class Optimizer {
 public:
  // sharers: the workers that share the state; each keeps a part, and needs the gradients of this
  // part (shards()) to update its part of the weights. Null: this worker has the whole state.
  // REQUIRES: `parameters` and `sharers` outlive the optimizer.
  Optimizer(const std::vector<model::Parameter>& parameters, const Device& device,
            const OptimOptions& options, cluster::Comm* sharers = nullptr);
  Optimizer(const model::PolicyModel& model, const OptimOptions& options)
      : Optimizer(model.parameters(), model.device(), options) {}
  // The state of a rank's part: each rank gets the gradients of its part and updates it, with the bits
  // of one worker that has the whole state; step(), snapshot() and load() are collective for the
  // group. takes_snapshots: false on ranks of a group whose snapshot() is not needed, and gives nothing.
  // REQUIRES: AdamW; `shard` outlives the optimizer.
  Optimizer(const model::PolicyShard& shard, const OptimOptions& options, bool takes_snapshots);

  // One optimizer step with the gradient clipped to clip_grad; writes the weights. Returns the
  // gradient's norm before clipping. Collective for workers that share the state. Reads the
  // gradients twice: for the norm, then for the update.
  double step(const GradientView& gradients, double learning_rate);
  int64_t steps() const { return steps_; }  // finished steps
  // Those of the steps from now on. REQUIRES: no step is in progress; the same optimizer.
  void set_options(const OptimOptions& options);

  // Counts a step that is left out because its gradient is invalid; weights, moments and steps()
  // stay as they are, so the learning rate schedule does not advance either.
  void skip_step() { ++skipped_in_row_; }
  // Steps left out since the last finished one. Not part of state(); resuming restores it.
  int64_t skipped_in_row() const { return skipped_in_row_; }
  void restore_skipped_in_row(int64_t skipped) { skipped_in_row_ = skipped; }

  // The same in parts, for callers that must be able to stop in between:
  //   begin_step(norm, rate); while (try_update(gradients, elements)) …; end_step();
  // Until end_step() weights and state() are only partly updated.
  void begin_step(double norm, double learning_rate);
  // Updates about `elements` parameters (whole rows); false: none was left.
  [[nodiscard]] bool try_update(const GradientView& gradients, int64_t elements);
  // Collective for workers that share the state, or whose parts make a model: each gets the weights
  // that the others updated.
  void end_step();
  bool is_in_step() const { return place_.has_value(); }

  // Whether other workers have a part of the state.
  bool is_shared() const { return sharers_ != nullptr || shard_ != nullptr; }
  const Shards* shards() const { return sharers_ ? &shards_ : nullptr; }  // null: no sharers
  int64_t bytes() const;  // bytes of the state kept on this worker

  // (name, tensor) of all master weights and moments: the optimizer's own memory, not a copy.
  // REQUIRES: the state is not shared.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  // A copy of state(), the same for any number of sharers. Collective for workers with a part of it;
  // the first one gets the copy, the others nothing.
  std::vector<model::TensorSource> snapshot() const;
  // Loads a state() after `steps` steps and writes the weights; if the state is shared each worker
  // keeps its part. Throws InputError, before anything has changed, for a state of another model.
  void load(const std::vector<std::pair<std::string, at::Tensor>>& state, int64_t steps);
  // The same, with one of its tensors at a time in memory.
  void load(const std::vector<model::TensorSource>& state, int64_t steps);

 private:
  struct State {
    RowRange range;  // rows of one parameter kept on this worker
    bool is_muon = false;
    at::Tensor master, average, square;  // their values; without `square`: is_muon
  };
  struct Kind {
    const char* prefix;  // prefix of the name in state()
    at::Tensor State::*tensor;
  };
  std::span<const Kind> kinds(size_t parameter) const;
  // Values of one step that are the same for every element.
  struct Coefficients {
    float clip = 1;  // factor of the gradient
    float kept = 1;  // 1 - lr * weight decay, for parameters with decay
    float beta1 = 0, beta2 = 0, epsilon = 0;
    double rate = 0;         // the learning rate
    float step_size = 0;     // lr / (1 - beta1^t)
    float square_scale = 0;  // sqrt(1 - beta2^t)
  };
  // As many elements of each as there are gradients.
  static void update_range(const Coefficients& c, std::span<const float> gradients, float* master,
                           float* average, float* square);
  double norm_of(const GradientView& gradients) const;
  double norm_of_group(const GradientView& gradients) const;
  void update(const Bucket& bucket, const at::Tensor& gradients);
  void update_rows(const TensorSpan& span, const at::Tensor& gradient);
  void add_to_momentum(const TensorSpan& span, const at::Tensor& gradient);
  void move_matrices(size_t parameter);
  void write(const Bucket& bucket);
  int64_t first_element(size_t parameter) const;
  struct SentRows {
    size_t parameter = 0;
    RowRange range;
  };
  void exchange_weights() const;
  void send_weights(int owner, const std::vector<SentRows>& sent) const;
  at::Tensor gather(size_t parameter, const Kind& kind) const;
  at::Tensor snapshot(size_t parameter, const Kind& kind) const;
  const std::vector<model::Parameter>& whole_parameters() const {
    return shard_ ? shard_->model().parameters() : parameters_;
  }
  void check_state(const std::map<std::string, const model::TensorSource*>& given,
                   size_t tensors) const;

  const std::vector<model::Parameter>& parameters_;
  const Device device_;
  OptimOptions options_;
  cluster::Comm* const sharers_;               // null: not shared
  const model::PolicyShard* shard_ = nullptr;  // null: the parameters are not those of a part
  bool takes_snapshots_ = true;
  const Shards shards_;
  std::vector<State> states_;  // in the order of the parameters
  int64_t steps_ = 0;
  int64_t skipped_in_row_ = 0;
  Coefficients step_;           // of the unfinished step
  std::optional<Place> place_;  // progress of the step; none: it has ended
  at::Tensor direction_;        // of Muon, for its matrices of the parameter in progress
  std::optional<runtime::PinnedCopies> uploads_;  // of weights; none: the device is the CPU
};

}  // namespace tlt::train

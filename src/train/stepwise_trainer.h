// StepwiseTrainer: gradients and optimizer steps one at a time, at a caller's request: the parts of
// Trainer::update() for a program that composes them itself (tinker/).
//
// A loss is a sum over tokens, not a mean, and the gradients of several passes add up until the next
// optimizer step. Packs, arithmetic and the exact sum are those of Trainer, so a pass and a step
// with the same weights of the tokens end with the same bits as Trainer::update().
//
// Owns       the optimizer (master weights, moments), the sum of gradients, those of a layer, the
//            activations of a pack.
// Borrows    the policy model, whose weights it changes; an adapter, which then is all that is
//            trained.
// Not here   several workers (trainer.h).
// Threading  engine thread only.
//
//   StepwiseTrainer trainer(model, /*adapter=*/nullptr, {.max_tokens = 16384});
//   const auto pass = trainer.forward_backward(samples, loss);
//   const auto [norm, fault] = trainer.step(optim);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "cluster/comm.h"
#include "model/policy_model.h"
#include "model/tape.h"
#include "train/dro_loss.h"
#include "train/gradient_sum.h"
#include "train/head_loss.h"
#include "train/lora.h"
#include "train/loss_options.h"
#include "train/optimizer.h"
#include "train/pack_plan.h"
#include "train/staged_gradients.h"

namespace tlt::train {

class StepwiseTrainer {
 public:
  struct Options {
    int64_t max_tokens = 16384;  // per forward pass
    bool recompute = false;
  };
  // A policy loss of samples with advantages. Losses that compare a sample with its batch
  // (uses_covariance()) and means are not available: loss_agg_mode is ignored.
  using Loss = std::variant<LossOptions, DroOptions>;
  // By sample, the token that each of its tokens but the last predicts; none, or an empty list: its
  // next tokens.
  using Targets = std::span<const std::vector<int32_t>>;
  struct Pass {
    double loss = 0;  // the sum over all tokens
    // Of all targets, by sample: those of the prompt, then those of the response.
    std::vector<std::vector<float>> logprobs;
  };
  struct Step {
    double norm = 0;    // of the gradient, before clipping
    std::string fault;  // not empty: the gradient is invalid (gradient_sum.h), nothing has changed
  };

  StepwiseTrainer(const model::PolicyModel& model, LoraAdapter* adapter, const Options& options);

  // forward_backward() adds the gradients to those since the last step.
  Pass forward(std::span<const TrainSample> samples, const Loss& loss, Targets targets = {});
  Pass forward_backward(std::span<const TrainSample> samples, const Loss& loss,
                        Targets targets = {});

  // One step of AdamW at the constant rate `optim.lr` with the gradients since the last one, which
  // are zero again afterwards.
  Step step(const OptimOptions& optim);

  // After writing its state (load) call written().
  Optimizer& optimizer() { return optimizer_; }
  void written();

 private:
  // labels: the samples, each with its targets in place of the tokens after the first.
  struct Batch {
    std::span<const TrainSample> samples, labels;
  };
  Pass pass(const Batch& batch, TokenLoss& loss, bool is_backward);
  void backward(const at::Tensor& d_hidden);
  void score_prompts(const PlannedPack& pack, std::span<const PackedSample> packed,
                     std::span<const TrainSample> labels, Pass& out);

  const model::PolicyModel& model_;
  LoraAdapter* const adapter_;  // null: the model's weights are trained
  const Options options_;
  const std::unique_ptr<cluster::Comm> alone_;
  Optimizer optimizer_;
  GradientSum sum_;
  StagedGradients staged_;     // of the trained parameters
  model::Gradients backward_;  // passed to backward(), which then adds to staged_
  model::Tape tape_;
  HeadLoss head_;
};

}  // namespace tlt::train

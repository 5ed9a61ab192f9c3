// Trainer: trains a policy, or a critic, on samples: forward, loss, backward, one exact sum over
// packs and workers, one step of the optimizer.
//
// Every worker gets the same samples and computes its share of their packs. Afterwards all have the
// same weights, bit-equal to those that one worker would have computed (gradient_sum.h). If a worker
// is lost, the others compute the optimizer step again, from the same weights: none of them changes
// its weights before all have the sum.
//
// The workers of a tensor parallel group may compute a pack together (GroupTraining): each has the
// gradients and the optimizer's state of its part of the model only. The weights have the same bits.
//
// Owns       the optimizer (master weights, moments), the sum of gradients, those of a layer, the
//            activations of a pack.
// Borrows    the model, whose weights it changes; an adapter, which then is all that is trained; a
//            critic, whose network the model is; the workers' collectives; the worker's part of the
//            model.
// Not here   rollouts, rewards and advantages (rl/); the loss of a token (policy_loss.h).
// Threading  engine thread only.
//
//   Trainer trainer(model, options, comm, {.total_steps = 30, .temperature = 1.0});
//   TrainStats stats = trainer.update(samples);     // mini-batches and epochs
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/comm.h"
#include "model/policy_model.h"
#include "model/policy_shard.h"
#include "model/tape.h"
#include "train/gradient_sum.h"
#include "train/head_loss.h"
#include "train/lora.h"
#include "train/loss_options.h"
#include "train/optimizer.h"
#include "train/pack_plan.h"
#include "train/sample.h"
#include "train/staged_gradients.h"
#include "train/value_model.h"

namespace tlt::train {

struct TrainerOptions {
  int64_t ppo_mini_batch_size = 0;
  int64_t ppo_epochs = 1;
  int64_t max_tokens = 16384;
  bool recompute = false;
  bool early_gradients = true;
  bool use_distributed_optimizer = false;
  LossOptions loss;
  OptimOptions optim;

  void visit(auto& v) {
    v(ppo_mini_batch_size, "ppo_mini_batch_size", Affects::kResults,
      "Prompts per optimizer step; 0: the whole batch.");
    v(ppo_epochs, "ppo_epochs", Affects::kResults, "Passes over each batch.");
    v(max_tokens, "ppo_max_token_len_per_gpu", Affects::kResults,
      "Largest number of tokens per forward pass in training.");
    v(recompute, "enable_gradient_checkpointing", Affects::kSpeed,
      "Keep only each layer's input and recompute the rest: less memory, a third more work.");
    v(early_gradients, "early_gradients", Affects::kSpeed,
      "Idle workers compute gradients of finished groups during the rollouts; the update computes "
      "the rest.");
    v(use_distributed_optimizer, "use_distributed_optimizer", Affects::kSpeed,
      "Shard the optimizer's state over the workers, which exchange the updated weights (ZeRO, "
      "stage 1): less memory.");
    loss.visit(v);
    v.group("optim", optim);
  }
  void check() const;
};

// Statistics of one update: metrics (verl's names), averaged over its optimizer steps; of an
// abandoned one their sums.
struct TrainStats {
  std::vector<std::pair<std::string, double>> metrics;
  // Largest difference between the rollout's logprobs and this model's, before the first optimizer
  // step; exactly 0 while engine and trainer share weights and arithmetic. NaN if the samples have
  // no rollout logprobs.
  double logprob_difference = std::numeric_limits<double>::quiet_NaN();
  double probability_difference = std::numeric_limits<double>::quiet_NaN();
  int64_t packs = 0;  // that had a pass
  int64_t tokens = 0;
  int64_t optimizer_bytes = 0;  // master weights and moments on this worker
  int64_t skipped_steps = 0;    // optimizer steps left out because their gradient is invalid
  std::string fault;            // of the last of them (gradient_sum.h)
  int64_t steps = 0;            // optimizer steps done, those left out included
  bool is_abandoned = false;    // set_should_stop(): further steps are to be done
};

// kPreference: the samples are pairs, each chosen response before its rejected one.
enum class LossKind { kPolicy, kSupervised, kPreference, kValue };

// The workers of a tensor parallel group train together.
struct GroupTraining {
  const model::PolicyShard* shard = nullptr;  // this worker's part of the trainer's model
  cluster::Comm* members = nullptr;           // of the group
  cluster::Comm* replicas = nullptr;          // workers with the same part, one of each group
};

// What is the same for a whole run.
struct TrainingRun {
  int64_t total_steps = 1;         // optimizer steps, for the schedule
  double temperature = 1;          // the rollout's
  LoraAdapter* adapter = nullptr;  // trained instead of the model's weights; null: those are
  // Of the loss's distillation, with the model's vocabulary, on its device; null: none.
  const model::PolicyModel* teacher = nullptr;
  // Trained with kValue instead of a policy: the trainer's model is its network. Null: a policy is.
  const ValueModel* critic = nullptr;
  // REQUIRES, if set: AdamW, whose state is not shared; none of the three above; no compute_early().
  std::optional<GroupTraining> group = {};
};

class Trainer {
 public:
  Trainer(const model::PolicyModel& model, const TrainerOptions& options, cluster::Comm& comm,
          const TrainingRun& run);
  ~Trainer();

  // One optimizer step for each mini-batch of samples_per_step samples (0: all of them) in each
  // epoch. A step whose gradient is invalid is skipped, on all workers: nothing changes but
  // Optimizer::skipped_in_row(). When that exceeds kMaxSkippedSteps, no further steps are done, and
  // the caller ends the run. `done`: of an abandoned update of the same samples, which it continues,
  // with the weights that it left. REQUIRES: the same samples, in the same order, on every worker;
  // of preference pairs an even samples_per_step.
  TrainStats update(std::span<const TrainSample> samples, LossKind kind,
                    int64_t samples_per_step = 0, TrainStats done = {});

  // Computes gradients of a group before update() has its whole batch, so that an idle worker does
  // what the update would do. Each call goes one layer further through the group's packs, with the
  // present weights; false: that was all. update() computes the rest of its first mini-batch,
  // beginning with a pack in progress; the weights are the same.
  // REQUIRES: all samples of their TrainSample::group, as update() will have them, which stay where
  // they are until update() or the last call; this group until its last call; kPolicy; a loss that
  // does not depend on the whole mini-batch; no other worker computes this group.
  bool compute_early(std::span<const TrainSample> group);

  // `on_pack` is called after each of this worker's packs of an optimizer step.
  void set_on_pack(std::function<void(int64_t done, int64_t packs)> on_pack) {
    on_pack_ = std::move(on_pack);
  }

  // `should_stop` is called often while an update computes gradients: true on any worker abandons
  // the update, before an optimizer step. REQUIRES: once true, it stays true; set on every worker or
  // on none.
  void set_should_stop(std::function<bool()> should_stop) { should_stop_ = std::move(should_stop); }

  // Frees the activations, which are kept from pack to pack otherwise, for the time of the rollouts.
  // REQUIRES: no pack is in progress.
  void release_memory();

  Optimizer& optimizer() { return optimizer_; }
  const Optimizer& optimizer() const { return optimizer_; }

 private:
  struct Progress;
  struct Early;

  TrainStats step(std::span<const TrainSample> samples, LossKind kind, bool is_first);
  TrainStats sum_gradients(std::span<const TrainSample> samples, LossKind kind, bool is_first);
  double update_weights(double rate);
  bool has_skipped_too_many() const { return optimizer_.skipped_in_row() > kMaxSkippedSteps; }
  std::string agreed_fault(const std::string& own) const;
  bool should_stop() const;
  void start(std::unique_ptr<TokenLoss> loss);
  bool try_show_batch(std::span<const TrainSample> samples);
  bool try_compute(const PackPlan& plan, const std::vector<size_t>& indices);
  void compare_with_others(const PackPlan& plan, std::span<const TrainSample> samples);
  void begin_pack(const PackPlan& plan, const PlannedPack& pack);
  bool advance_pack();
  bool advance_forward();
  void measure_rollouts();
  void end_pack();
  double cost_left() const;
  Early take_early(const PackPlan& plan, std::span<const TrainSample> samples);
  TrainStats statistics(const Progress& done, const PackPlan& plan);

  const model::PolicyModel& model_;  // with a group: this worker's part
  const TrainerOptions options_;
  cluster::Comm& comm_;  // workers that share the packs
  const TrainingRun run_;
  Optimizer optimizer_;
  GradientSum sum_;
  bool is_sum_clear_ = true;
  double gradient_scale_ = 1;  // of the sum
  StagedGradients staged_;     // of the trained parameters
  model::Gradients backward_;  // passed to backward(), which then adds to staged_
  model::Tape tape_;
  std::optional<model::Tape> teacher_tape_;        // of the same pack
  HeadLoss lm_head_;                               // not used for a critic
  std::optional<ValueHead> value_head_;            // of a critic
  OutputHead& head_;                               // one of them
  std::unique_ptr<Progress> progress_;             // of the next optimizer step; null: none
  std::function<void(int64_t, int64_t)> on_pack_;  // may be empty
  std::function<bool()> should_stop_;              // may be empty
};

struct Scoring {
  double temperature = 1;
  int64_t max_tokens = 16384;  // per forward pass
  // Logprobs that this worker has already, by sample; an empty list: it has not.
  std::vector<std::vector<float>> known = {};
  // True between two packs: leaves out the rest of them. May be empty.
  std::function<bool()> should_stop = {};
  const ValueModel* critic = nullptr;  // whose network the model is: its values instead of logprobs
};

// Logprobs of samples under a model, without training: for `tlt score` and the reference policy.
// All workers together; every one gets all, those that another worker knew included.
std::vector<std::vector<float>> score_samples(const model::PolicyModel& model,
                                              std::span<const TrainSample> samples,
                                              const Scoring& scoring, cluster::Comm& comm);

}  // namespace tlt::train

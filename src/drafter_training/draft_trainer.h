// DraftTrainer: trains a draft model on samples: forward, losses, backward, one exact sum over
// packs and workers, AdamW. The warm-up and idle training share it.
//
// With several passes the draft model continues from its own states (EAGLE-3's training-time test,
// HASS's aligned contexts; drafter/eagle/ttt_attention.h). The loss of a pass is a mean over its
// own rows, with pass_decay times the weight of the previous pass.
//
// Samples are packed without padding; each attends to itself only, from position 0 on (DraftTape).
// Every worker gets the same samples and computes its share of their packs. Afterwards all have the
// same weights, bit-equal to those that one worker would have computed (train/gradient_sum.h).
//
// Owns       the draft model's optimizer, gradients, and the activations of a pack.
// Borrows    the network, whose weights it changes, and through it the target (read only); the
//            workers' collectives.
// Not here   the source of the samples (hidden_store.h); the losses (draft_loss.h).
// Threading  engine thread only.
//
//   DraftTrainer trainer(network, options, comm, /*total_steps=*/300);
//   DraftTrainStats stats = trainer.step(samples);          // one optimizer step
//   DraftSums now = trainer.measure(held_out);         // over all workers; changes nothing
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/comm.h"
#include "drafter/eagle/draft_network.h"
#include "drafter/eagle/draft_tape.h"
#include "drafter_training/draft_loss.h"
#include "drafter_training/draft_options.h"
#include "drafter_training/draft_sample.h"
#include "train/chunks.h"
#include "train/gradient_sum.h"
#include "train/optimizer.h"
#include "train/packing.h"

namespace tlt::drafter_training {

// Statistics of one step.
struct DraftTrainStats {
  std::vector<std::pair<std::string, double>> metrics;  // "drafter/loss" …
  std::string fault;  // why the step was skipped (train/gradient_sum.h); empty: it was not
  int64_t packs = 0;
  int64_t tokens = 0;  // pairs that the draft model processed
};

// Throws InputError if no position counts.
void check_samples(std::span<const DraftSample> samples, const DraftTrainOptions& options);

class DraftTrainer {
 public:
  // total_steps: optimizer steps of the whole run, for the schedule. `logits_bytes`: DraftLoss.
  DraftTrainer(const drafter::DraftNetwork& network, const DraftTrainOptions& options,
               cluster::Comm& comm, int64_t total_steps, int64_t logits_bytes = int64_t{1} << 25);

  // One optimizer step; skipped, with the weights unchanged, if its gradient is invalid. REQUIRES:
  // the same samples, in the same order, on every worker.
  DraftTrainStats step(std::span<const DraftSample> batch);

  // The same in parts, for callers that must be able to stop in between:
  //   begin(batch); while (run_pack() > 0) …; while (try_update(elements)) …; finish();
  // begin() discards an unfinished step. Packs have at most `pack_tokens` pairs.
  void begin(std::vector<DraftSample> batch,
             int64_t pack_tokens = std::numeric_limits<int64_t>::max());
  // Runs the next pack and returns its pairs; 0: none was left.
  int64_t run_pack();
  // The pairs of the next pack; 0: none is left.
  int64_t next_pack_tokens() const;
  // A part of the optimizer's step, over about `elements` parameters; false: none was left. Skips
  // the packs that are left. Between the parts only some of the weights are updated.
  [[nodiscard]] bool try_update(int64_t elements);
  bool is_updating() const { return optimizer_.is_in_step(); }
  // Does the rest of the optimizer's step. REQUIRES: begin() was called.
  DraftTrainStats finish();

  // The losses and accuracies of the samples.
  DraftSums measure(std::span<const DraftSample> samples);
  // The loss weights that apply to this kind of draft model, for DraftSums::metrics.
  const DraftLossWeights& loss_weights() const { return loss_.weights(); }

  train::Optimizer& optimizer() { return optimizer_; }
  const train::Optimizer& optimizer() const { return optimizer_; }

 private:
  // A pack, ready for the network.
  struct Loaded {
    at::Tensor shown, wanted;                // [T, S], [T, D] on the device
    std::vector<std::vector<int64_t>> rows;  // rows that count, by pass
  };
  // Loads a pack and fills the tape.
  Loaded load(std::span<const DraftSample> batch, std::span<const int64_t> pack);
  void learn(const Loaded& pack);
  bool add_squares(int64_t elements);
  bool clear_sum(int64_t elements);
  void begin_update();
  void end_update();
  std::vector<std::pair<std::string, double>> metrics_of_begun() const;

  // Progress of the optimizer's step.
  enum class Phase { kSum, kNorm, kLearn, kClear, kDone };

  // The unfinished step.
  struct Begun {
    std::vector<DraftSample> batch;
    std::vector<train::Pack> packs;  // of this worker
    int64_t all_packs = 0;
    size_t next_pack = 0;
    std::vector<double> weights, scales;  // by pass: of its loss, of a row's gradient
    std::vector<DraftSums> sums;          // by pass
    int64_t tokens = 0, run_tokens = 0;   // of all packs; of this worker's finished ones
    Phase phase = Phase::kSum;
    train::Place place;  // in the phase
    double squares = 0, norm = 0, rate = 0;
    std::string fault;  // of the gradient
  };

  const drafter::DraftNetwork& network_;
  const DraftTrainOptions options_;
  cluster::Comm& comm_;
  const int64_t total_steps_;
  const int64_t passes_;
  train::Optimizer optimizer_;
  train::GradientSum sum_;
  model::Gradients gradients_;  // of a pack; zero between packs
  drafter::DraftTape tape_;
  DraftLoss loss_;
  Begun begun_;
  bool is_clear_ = true;  // the sum is zero
};

}  // namespace tlt::drafter_training

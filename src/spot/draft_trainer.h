// DraftTrainer: a drafter learns from samples: forward, losses, backward, one exact sum over packs
// and workers, AdamW. The warm-up and the spot trainer share it.
//
// With several passes the drafter goes on from its own states (EAGLE-3's training-time test, HASS's
// aligned contexts; model/unrolled_attention.h); a pass's loss is a mean over its own rows, and
// weighs pass_decay of the pass before.
//
// Samples are packed without padding; each sees itself only, from position 0 on (DraftTape). Every
// worker is given the same samples and computes its share of their packs; afterwards all have the
// same weights, bit-equal to what one worker alone would have computed (train/gradient_sum.h).
//
// Owns       the drafter's optimizer, gradients, activations of a pack.
// Borrows    the network, whose weights it changes, and through it the target, which it reads; the
//            workers' collectives.
// Not here   where samples come from (hidden_store.h); the losses (draft_loss.h).
// Threading  engine thread only.
//
//   DraftTrainer trainer(network, options, comm, /*total_steps=*/300);
//   DraftStats stats = trainer.step(samples);          // one optimizer step
//   DraftSums now = trainer.measure(held_out);         // over all workers, changes nothing
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/comm.h"
#include "model/draft_network.h"
#include "model/draft_tape.h"
#include "spot/draft_loss.h"
#include "spot/draft_options.h"
#include "spot/draft_sample.h"
#include "train/adamw.h"
#include "train/chunks.h"
#include "train/gradient_sum.h"
#include "train/packing.h"

namespace tlt::spot {

// Of one step.
struct DraftStats {
  std::vector<std::pair<std::string, double>> metrics;  // "drafter/loss" …
  int64_t packs = 0;
  int64_t tokens = 0;  // pairs that went through the drafter
};

// InputError: a sample is longer than options.max_tokens, or none has a position that counts.
void check_samples(std::span<const DraftSample> samples, const DraftTrainOptions& options);

class DraftTrainer {
 public:
  // total_steps: optimizer steps of the whole run, for the schedule. `logits_bytes`: DraftLoss.
  DraftTrainer(const model::DraftNetwork& network, const DraftTrainOptions& options,
               cluster::Comm& comm, int64_t total_steps, int64_t logits_bytes = int64_t{1} << 25);

  // One optimizer step. The samples are the same, in the same order, on every worker.
  DraftStats step(std::span<const DraftSample> batch);

  // The same in parts, for who must be able to stop for a while in between:
  //   begin(batch); while (run_pack() > 0) …; while (try_update(elements)) …; finish();
  // begin() forgets what was begun and not finished. Packs have at most `pack_tokens` pairs.
  void begin(std::vector<DraftSample> batch,
             int64_t pack_tokens = std::numeric_limits<int64_t>::max());
  // Returns the pack's pairs; 0: none was left.
  int64_t run_pack();
  // Of the next one; 0: none is left.
  int64_t next_pack_tokens() const;
  // A part of the optimizer's step, over about `elements` numbers; false: none was left. Packs that
  // are left are left out. Between the parts the weights are half those of before.
  [[nodiscard]] bool try_update(int64_t elements);
  bool is_updating() const { return optimizer_.is_in_step(); }
  // Does what is left of that. REQUIRES: a step was begun.
  DraftStats finish();

  // The losses and accuracies of the samples, without noise.
  DraftSums measure(std::span<const DraftSample> samples);
  // Those of the drafter's kind, for DraftSums::metrics.
  const DraftLossWeights& loss_weights() const { return loss_.weights(); }

  train::AdamW& optimizer() { return optimizer_; }
  const train::AdamW& optimizer() const { return optimizer_; }

 private:
  // A pack, ready for the network.
  struct Loaded {
    at::Tensor shown, wanted;                // [T, S] and [T, D] on the device
    std::vector<std::vector<int64_t>> rows;  // that count, by pass
  };
  // Fills the tape too. Noise is that of optimizer step `noise_step`; negative: none.
  Loaded load(std::span<const DraftSample> batch, std::span<const int64_t> pack,
              int64_t noise_step);
  void learn(const Loaded& pack);
  bool read_gradients(int64_t elements);
  bool clear_gradients(int64_t elements);
  std::vector<std::pair<std::string, double>> metrics_of_begun() const;
  at::Tensor noisy(const at::Tensor& states, uint32_t id, int64_t noise_step) const;

  // How far the optimizer's step is.
  enum class Phase { kSum, kRead, kLearn, kClear, kDone };

  // The step that was begun.
  struct Begun {
    std::vector<DraftSample> batch;
    std::vector<train::Pack> packs;  // of this worker
    int64_t all_packs = 0;
    size_t next_pack = 0;
    std::vector<double> weights, scales;  // of the passes: of their losses, of a row's gradient
    std::vector<DraftSums> sums;          // of the passes
    int64_t tokens = 0, run_tokens = 0;   // of all packs, and of this worker's that were run
    Phase phase = Phase::kSum;
    train::Place place;  // in the phase
    double squares = 0, norm = 0, rate = 0;
  };

  const model::DraftNetwork& network_;
  const DraftTrainOptions options_;
  cluster::Comm& comm_;
  const int64_t total_steps_;
  const int64_t passes_;
  train::AdamW optimizer_;
  train::GradientSum sum_;
  model::Gradients gradients_;
  model::DraftTape tape_;
  DraftLoss loss_;
  Begun begun_;
  bool is_clear_ = true;  // sum_ and gradients_ are zero
};

}  // namespace tlt::spot

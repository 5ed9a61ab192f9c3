// DraftTrainOptions: how a draft model is trained, in the warm-up and on idle workers; and
// WarmupOptions: what the warm-up trains on. Names are FastRL's if it has the option.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"
#include "drafter/make_draft_network.h"
#include "drafter_training/draft_sample.h"
#include "train/schedule.h"

namespace tlt::drafter_training {

// The members that visit() does not list are no options.
struct DraftTrainOptions {
  int64_t batch_size = 32;
  double hidden_weight = 1.0;  // of SmoothL1; AdamW ignores the scale, so logits_weight suffices
  double logits_weight = 0.1;
  int64_t passes = 0;
  double pass_decay = 0.8;  // SpecForge's weight of a further pass relative to the previous one
  // Of a training pass, for the memory of its activations; a longer sequence is a pass of its own.
  int64_t max_tokens = 8192;
  std::string loss_positions = "response";  // what is drafted; tests also train on all positions
  int64_t seed = 0;  // of initial weights; runs differ by trainer.seed's rollouts
  // FastRL's, for some hundreds of steps (its ramp of 12,000 steps has no effect on a small
  // corpus).
  train::OptimOptions optim = {.lr = 1e-3,
                               .betas = {0.9, 0.95},
                               .weight_decay = 0,
                               .clip_grad = 0.5,
                               .lr_scheduler_type = "cosine",
                               .lr_warmup_steps_ratio = 0.03,
                               .min_lr_ratio = 0.03};

  void visit(auto& v) {
    v(batch_size, "batch_size", Affects::kResults,
      "Sequences of one optimizer step of the draft model, over all workers.");
    v(logits_weight, "logits_weight", Affects::kResults,
      "Loss weight of the cross-entropy between target and draft logits; that of the hidden state "
      "regression (SmoothL1) is 1.");
    v(passes, "passes", Affects::kResults,
      "Training-time-test passes: in each further one the draft model continues from its own "
      "states, as in drafting; 0: 7 of eagle3, 1 of eagle.");
    v(optim.lr, "optim.lr", Affects::kResults, "Learning rate.");
  }
  // Throws InputError if a value is invalid.
  void check() const;
  // REQUIRES: check() passed.
  LossPositions positions() const {
    return loss_positions == "all" ? LossPositions::kAll : LossPositions::kResponse;
  }
};

// Options of `tlt draft`. algorithm, draft_vocab_size and init also apply to `tlt train` when it
// starts without a draft model.
struct WarmupOptions {
  std::string algorithm = "eagle";
  int64_t draft_vocab_size = 32768;
  std::string source = "rollouts";
  std::string init = "random";
  std::string hidden_states_dir;
  // Not options: the share of the prompts that are held out to measure the draft model, enough for
  // an acceptance length within a few percent, and the length of the chains that are drafted then.
  double val_share = 0.05;
  int64_t val_steps = 8;

  void visit(auto& v) {
    v(algorithm, "algorithm", Affects::kResults,
      "Draft model that tlt draft trains, and tlt train where none is given: eagle, or eagle3 "
      "(hidden states of three layers, an LM head of its own).");
    v(draft_vocab_size, "draft_vocab_size", Affects::kResults,
      "eagle3: size of the LM head, the most frequent tokens of the training data; 0: all.");
    v(source, "source", Affects::kResults,
      "Training data of tlt draft: rollouts (responses of the target to data.train_files' prompts) "
      "or responses (those of the data rows).");
    v(init, "init", Affects::kResults,
      "Initial weights of the draft model: random, target (its last layer), or a draft model's "
      "folder.");
    v(hidden_states_dir, "hidden_states_dir", Affects::kPlace,
      "Folder of the target's hidden states; empty: hidden_states in the run folder.");
  }
  // Throws InputError if a value is invalid.
  void check() const;
  // The draft model that training begins with. REQUIRES: check() passed.
  drafter::DraftNetworkPlan network_plan(uint64_t seed) const;
};

}  // namespace tlt::drafter_training

// IdleTrainOptions: when and how long idle workers train the draft model during rollouts. Names are
// FastRL's if it has the option. The target determines every token, so no option changes one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/options.h"

namespace tlt::drafter_training {

struct IdleTrainOptions {
  bool enable_drafter_training = true;
  int64_t training_interval_steps = 0;
  int64_t step_tokens = 2048;
  int64_t window = 512;  // not an option: longest piece of a sequence in one sample
  bool save_buffer = false;
  double gap_share = 0.05;
  int64_t consolidate_below = -1;
  int64_t frozen_after_steps = -1;
  // These are no options.
  int64_t buffer_bytes = int64_t{1} << 29;  // part of speculative.memory_bytes
  // How long training may take without a look for rollout work: the packs of a large model still
  // fit, and a worker that gets work loses no more.
  double slice_milliseconds = 50;
  // Largest relative loss of acceptance length, on held-out responses, at which a trained draft
  // model is used: that of the noise of some thousand tokens.
  double publish_margin = 0.02;

  void visit(auto& v) {
    v(enable_drafter_training, "enable_drafter_training", Affects::kSpeed,
      "tlt train: train the EAGLE draft model on idle workers.");
    v(training_interval_steps, "training_interval_steps", Affects::kSpeed,
      "RL steps from one training of the draft model to the next (the paper: 10); 0: it is trained "
      "while it improves, and again when it has become worse.");
    v(step_tokens, "step_tokens", Affects::kSpeed,
      "Tokens of one optimizer step of the draft model on one worker.");
    v(save_buffer, "save_buffer", Affects::kPlace,
      "Write the hidden states that the draft model is trained on into checkpoints; otherwise a "
      "resumed run collects new ones.");
    v(gap_share, "gap_share", Affects::kSpeed,
      "A single worker is never idle: it trains the draft model for this fraction of each "
      "rollout's time, after the rollout.");
    v(consolidate_below, "consolidate_below", Affects::kSpeed,
      "When two workers together have at most this many unfinished responses, those of the one "
      "with fewer migrate to the other, so that it trains the draft model earlier; 0: never; -1: "
      "as many as hardly slow the other down, by the costs that ADAPTIVE measured.");
    v(frozen_after_steps, "frozen_after_steps", Affects::kSpeed,
      "Also measure, in each step on the same held-out responses, a copy of the draft model that "
      "is not trained any further: of one that began with random weights after this many training "
      "steps, of a loaded one at the start; -1: none.");
  }
  // Throws InputError if a value is invalid.
  void check() const;

  bool is_paper_trigger() const { return training_interval_steps > 0; }
};

}  // namespace tlt::drafter_training

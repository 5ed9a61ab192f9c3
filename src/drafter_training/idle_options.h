// IdleTrainOptions: when and how long idle workers train the draft model during rollouts. Names are
// FastRL's if it has the option. The target determines every token, so no option changes one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace tlt::drafter_training {

struct IdleTrainOptions {
  bool enable_drafter_training = true;
  std::string trigger = "drift";
  int64_t training_interval_steps = 10;
  double slice_milliseconds = 50;
  int64_t step_tokens = 2048;
  int64_t window = 512;  // not an option: longest piece of a sequence in one sample
  int64_t buffer_bytes = int64_t{1} << 29;
  bool save_buffer = false;
  double publish_margin = 0.02;
  double gap_share = 0.05;
  int64_t consolidate_below = -1;
  bool compare_frozen = false;
  int64_t frozen_after_steps = 10;

  void visit(auto& v) {
    v(enable_drafter_training, "enable_drafter_training", Affects::kSpeed,
      "tlt train: train the EAGLE draft model on idle workers.");
    v(trigger, "trigger", Affects::kSpeed,
      "When the draft model is trained: drift (while it improves, and again when it has become "
      "worse) or interval (every training_interval_steps steps, as in the paper).");
    v(training_interval_steps, "training_interval_steps", Affects::kSpeed,
      "Trigger interval: RL steps from one training of the draft model to the next.");
    v(slice_milliseconds, "slice_milliseconds", Affects::kSpeed,
      "How often the training of the draft model looks for new rollout work.");
    v(step_tokens, "step_tokens", Affects::kSpeed,
      "Tokens of one optimizer step of the draft model on one worker.");
    v(buffer_bytes, "buffer_bytes", Affects::kSpeed,
      "Memory per worker of the hidden states for the draft model's training; the oldest are "
      "evicted.");
    v(save_buffer, "save_buffer", Affects::kPlace,
      "Write those hidden states into checkpoints; otherwise a resumed run collects new ones.");
    v(publish_margin, "publish_margin", Affects::kSpeed,
      "A trained draft model is used only if its acceptance length on held-out responses is at "
      "most this fraction below that of the one in use.");
    v(gap_share, "gap_share", Affects::kSpeed,
      "A single worker is never idle: it trains the draft model for this fraction of each "
      "rollout's time, after the rollout.");
    v(consolidate_below, "consolidate_below", Affects::kSpeed,
      "When two workers together have at most this many unfinished responses, those of the one "
      "with fewer migrate to the other, so that it trains the draft model earlier; 0: never; -1: "
      "as many as hardly slow the other down, by the costs that ADAPTIVE measured.");
    v(compare_frozen, "compare_frozen", Affects::kSpeed,
      "Measure in each step, on the same held-out responses, the acceptance length of a draft "
      "model that is not trained any further.");
    v(frozen_after_steps, "frozen_after_steps", Affects::kSpeed,
      "compare_frozen: training steps after which that copy is taken of a draft model that began "
      "with random weights; one that was loaded is copied at the start.");
  }
  // Throws InputError if a value is invalid.
  void check() const;

  bool is_paper_trigger() const { return trigger == "interval"; }
};

}  // namespace tlt::drafter_training

// SpotOptions: when and how long workers train the drafter beside the rollouts. FastRL's names
// where it has one. The target decides every token, so none of them changes one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace tlt::spot {

struct SpotOptions {
  bool enable_drafter_training = true;
  int64_t min_workers_for_training = 1;
  std::string trigger = "drift";
  int64_t training_interval_steps = 10;
  double slice_milliseconds = 50;
  int64_t step_tokens = 2048;
  int64_t window = 512;
  int64_t buffer_bytes = int64_t{1} << 29;
  bool save_buffer = false;
  double publish_margin = 0.02;
  double gap_share = 0.05;
  int64_t consolidate_below = -1;
  bool compare_frozen = false;
  int64_t frozen_after_steps = 10;

  void visit(auto& v) {
    v(enable_drafter_training, "enable_drafter_training", Affects::kSpeed,
      "tlt train: train the EAGLE drafter on workers that have nothing left to roll out.");
    v(min_workers_for_training, "min_workers_for_training", Affects::kSpeed,
      "Idle workers from which on they train the drafter.");
    v(trigger, "trigger", Affects::kSpeed,
      "When the drafter is trained: drift (while it gets better, and again when it has become "
      "worse) or interval (every training_interval_steps steps, the paper's way).");
    v(training_interval_steps, "training_interval_steps", Affects::kSpeed,
      "Trigger interval: RL steps from one training of the drafter to the next.");
    v(slice_milliseconds, "slice_milliseconds", Affects::kSpeed,
      "How long the drafter's training may go on before it looks whether there is work again.");
    v(step_tokens, "step_tokens", Affects::kSpeed,
      "Tokens of one optimizer step of the drafter on one worker.");
    v(window, "window", Affects::kSpeed,
      "Longest piece of a sequence that the drafter learns from at once.");
    v(buffer_bytes, "buffer_bytes", Affects::kSpeed,
      "Hidden states that a worker keeps for the drafter's training; the oldest go first.");
    v(save_buffer, "save_buffer", Affects::kPlace,
      "Write those hidden states into checkpoints; else a resumed run collects them anew.");
    v(publish_margin, "publish_margin", Affects::kSpeed,
      "A trained drafter is refused when it makes less than this share under the tokens a forward "
      "pass that the one in use makes, on responses it has not learned from.");
    v(gap_share, "gap_share", Affects::kSpeed,
      "One worker alone is never idle: it trains the drafter for this share of each rollout's "
      "time, behind the rollout.");
    v(consolidate_below, "consolidate_below", Affects::kSpeed,
      "When two workers have at most so many unfinished responses together, those of the one with "
      "fewer go on at the other, and it trains the drafter earlier; 0: they stay; -1: as many as "
      "hardly slow the other down, by what tuner ADAPTIVE knows.");
    v(compare_frozen, "compare_frozen", Affects::kSpeed,
      "Measure in each step, on the same held-out responses, what a draft model that is not "
      "trained any further would accept today.");
    v(frozen_after_steps, "frozen_after_steps", Affects::kSpeed,
      "compare_frozen: training steps after which the copy that stays as it is is taken of a draft "
      "model that began with random weights; one that was loaded is copied at the start.");
  }
  // InputError: a value makes no sense.
  void check() const;

  bool is_paper_trigger() const { return trigger == "interval"; }
};

}  // namespace tlt::spot

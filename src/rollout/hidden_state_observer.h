// HiddenStateObserver: observer of the hidden states that the engine computes;
// drafter_training/draft_buffer implements it.
//
// What it gets, and when:
//   * Row first + i of the states is that of tokens[i] at position + i: after the final norm, or
//     the inputs of layers(). Positions count from the first prompt token. State t and token t + 1
//     predict state t + 1.
//   * A prompt once per group, with sample == kPrompt; a response's own tokens with its sample.
//     Positions come in order, without gaps, in pieces of any size, each exactly once: rows
//     recomputed after a preemption are not passed again. Only a response that is resumed
//     (Engine::resume) is passed again, and its prompt too: from the first token, or, if the engine
//     has a prefix cache, its tokens from the first one that is computed again.
//   * Committed tokens only, before they can appear in a Response. A response's last token never
//     goes through the model, so it has no state: a finished response of n tokens has n - 1
//     states, a cancelled one at most n - 1.
//
// Threading  called in Engine::step on the engine's thread; must not call the engine.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "rollout/target_states.h"

namespace tlt::rollout {

class HiddenStateObserver {
 public:
  static constexpr uint32_t kPrompt = UINT32_MAX;

  // The rows of successive tokens in the states of a whole pass: a token has no tensor of its own.
  struct Rows {
    // [T, D], or D columns for each of layers(), in the compute type, on the CPU; valid during the
    // call only.
    const at::Tensor& states;
    int64_t first = 0;
  };

  virtual ~HiddenStateObserver() = default;
  // Layers whose input hidden states are captured; read once, when the engine is made.
  virtual Layers layers() const { return {}; }
  // False: the states of this engine step are not wanted, and it is not called.
  virtual bool is_open() const { return true; }
  virtual void on_hidden_states(uint32_t prompt_id, uint32_t sample, int32_t position,
                                const Rows& hidden, std::span<const int32_t> tokens) = 0;
};

}  // namespace tlt::rollout

// HiddenTap: where the engine offers the hidden states it computes anyway; spot/draft_buffer takes
// them.
//
// What is offered, and when:
//   * Row i of `hidden` is the state at position + i, where tokens[i] stands: after the final norm,
//     or what layers() says; positions count from the first prompt token. State t and token t + 1
//     predict state t + 1.
//   * A prompt once a group, with sample == kPrompt; a response's own tokens with its sample. Each
//     in order of position, without gaps, in pieces of any size, every position once: what is
//     computed again after a preemption is not offered again. Only where a response that was
//     given up is resumed (Engine::resume), it is offered anew, its prompt too.
//   * Only committed tokens, before they can appear in a Response. A response's last token never
//     goes through the model, so it has no state: a finished response of n tokens has had n - 1
//     offered, a cancelled one at most as many.
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

class HiddenTap {
 public:
  static constexpr uint32_t kPrompt = UINT32_MAX;

  virtual ~HiddenTap() = default;
  // What it wants to see of the target; asked once, when the engine is made.
  virtual Layers layers() const { return {}; }
  // hidden [tokens.size(), D], or D columns for each of layers(), in the compute type: a view,
  // valid during the call only.
  virtual void offer(uint32_t prompt_id, uint32_t sample, int32_t position,
                     const at::Tensor& hidden, std::span<const int32_t> tokens) = 0;
};

}  // namespace tlt::rollout

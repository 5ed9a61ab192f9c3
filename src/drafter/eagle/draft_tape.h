// DraftTape: what DraftNetwork::forward keeps for backward, over whole sequences of pairs
// (x_{t+1}, h_t), in one pass or several.
//
//   DraftTape tape;
//   tape.add_sequence(tokens.data() + 1, pairs);           // x_1 … with the states h_0 …
//   const at::Tensor& read = network.forward(tape, states);            // [T, D]
//   network.backward(tape, d_read, gradients);
//   tape.clear();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>

#include "drafter/eagle/draft_activations.h"
#include "drafter/eagle/ttt_attention.h"
#include "model/tape_batch.h"

namespace tlt::drafter {

struct DraftScratch {
  model::RowBuffer d_stream;     // [T, D] gradient of next, then of the stream
  model::RowBuffer d_input;      // [T, 2 D] input of q, k, v; EAGLE: input of FC
  model::RowBuffer d_half;       // [T, D] one half of d_input; EAGLE-3
  model::RowBuffer d_embedding;  // [T, D] not used: the embedding is the target's; EAGLE-3
  model::RowBuffer d_features;   // [T, D]
  model::RowBuffer d_next;       // [T, D] of the previous pass, through this one's features
  model::LayerScratch layer;
};

class DraftTape {
 public:
  // Appends the tokens of a sequence, from its first pair on, to the next batch. Their states are
  // the next `count` rows of forward's `states`.
  void add_sequence(const int32_t* tokens, int32_t count) {
    sequences_.add_sequence(tokens, count);
  }
  const ops::Batch& batch() const { return sequences_.batch(); }
  void clear() { sequences_.clear(); }
  // Number of passes over the batch so far, and the next states [T, D] of one of them.
  int64_t passes() const { return passes_; }
  const at::Tensor& next(int64_t index) { return pass(index).next.view(); }
  // The input of the LM head in that pass, [T, D].
  const at::Tensor& read(int64_t index) { return *pass(index).out; }

 private:
  friend class DraftNetwork;

  DraftPass& pass(int64_t index) {
    while (std::ssize(memory_) <= index) memory_.emplace_back();
    return memory_[static_cast<size_t>(index)];
  }
  // Layers of passes 0 … last.
  TttAttention::Passes layers(int64_t last) {
    TttAttention::Passes layers;
    for (int64_t i = 0; i <= last; ++i) layers.push_back(&pass(i).layer);
    return layers;
  }

  model::TapeBatch sequences_;
  at::Tensor states_;           // [T, S] as given
  model::RowBuffer projected_;  // [T, D] features of pass 0
  model::RowBuffer drafted_;    // [T, D] features of a later pass
  int64_t passes_ = 0;
  std::deque<DraftPass> memory_;
  TttAttention attention_;
  DraftScratch scratch_;
};

}  // namespace tlt::drafter

// DraftTape: what DraftNetwork::forward leaves behind for backward, over whole sequences of pairs
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

#include "model/draft_activations.h"
#include "model/tape_batch.h"
#include "model/unrolled_attention.h"

namespace tlt::model {

struct DraftScratch {
  RowBuffer d_stream;     // [T, D] gradient of next, then of the stream
  RowBuffer d_input;      // [T, 2 D] of what q, k, v read; EAGLE: of what FC reads
  RowBuffer d_half;       // [T, D] one half of it; EAGLE-3
  RowBuffer d_embedding;  // [T, D] goes nowhere: the embedding is the target's; EAGLE-3
  RowBuffer d_features;   // [T, D]
  RowBuffer d_next;       // [T, D] of the pass before, through the features of this one
  LayerScratch layer;
};

class DraftTape {
 public:
  // Appends the tokens of a sequence, from its first pair on, to the batch to come. Their states
  // are the next `count` rows of what forward is given.
  void add_sequence(const int32_t* tokens, int32_t count) {
    sequences_.add_sequence(tokens, count);
  }
  const ops::Batch& batch() const { return sequences_.batch(); }
  void clear() { sequences_.clear(); }
  // Passes over the batch so far, and the next states [T, D] of one of them.
  int64_t passes() const { return passes_; }
  const at::Tensor& next(int64_t index) { return pass(index).next.view(); }
  // What the head reads of it, [T, D].
  const at::Tensor& read(int64_t index) { return *pass(index).out; }

 private:
  friend class DraftNetwork;

  DraftPass& pass(int64_t index) {
    while (std::ssize(memory_) <= index) memory_.emplace_back();
    return memory_[static_cast<size_t>(index)];
  }
  // Layers of passes 0 … last.
  UnrolledAttention::Passes layers(int64_t last) {
    UnrolledAttention::Passes layers;
    for (int64_t i = 0; i <= last; ++i) layers.push_back(&pass(i).layer);
    return layers;
  }

  TapeBatch sequences_;
  at::Tensor states_;    // [T, S] as given
  RowBuffer projected_;  // [T, D] features of pass 0
  RowBuffer guessed_;    // [T, D] those of a later one
  int64_t passes_ = 0;
  std::deque<DraftPass> memory_;
  UnrolledAttention attention_;
  DraftScratch scratch_;
};

}  // namespace tlt::model

// DraftTape: what DraftNetwork::forward leaves behind for backward, over whole sequences of pairs
// (x_{t+1}, h_t).
//
//   DraftTape tape(network);
//   tape.add_sequence(tokens.data() + 1, pairs);           // x_1 … with the features h_0 …
//   const at::Tensor& next = network.forward(tape, features);          // [T, D]
//   network.backward(tape, d_next, gradients);
//   tape.clear();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/draft_network.h"
#include "model/tape_batch.h"

namespace tlt::model {

class DraftTape {
 public:
  explicit DraftTape(const DraftNetwork&) {}

  // Appends the tokens of a sequence, from its first pair on, to the batch to come. Their features
  // are the next `count` rows of what forward is given.
  void add_sequence(const int32_t* tokens, int32_t count) {
    sequences_.add_sequence(tokens, count);
  }
  const ops::Batch& batch() const { return sequences_.batch(); }
  void clear() { sequences_.clear(); }

 private:
  friend class DraftNetwork;

  TapeBatch sequences_;
  at::Tensor tokens_;  // [T] int32 on the device
  RowBuffer joined_;   // [T, 2 D]
  RowBuffer stream_;   // [T, D] z
  RowBuffer next_;     // [T, D] h'
  LayerActivations layer_;
  RowBuffer d_stream_;  // [T, D]
  RowBuffer d_joined_;  // [T, 2 D]; only where the features' gradient is asked for
  LayerScratch scratch_;
};

}  // namespace tlt::model

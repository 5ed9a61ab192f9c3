// The working memory of Eagle3Network: Eagle3Activations for the engine, Eagle3Tape for training;
// kept between calls.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/draft_eagle3.h"
#include "model/tape_batch.h"

namespace tlt::model {

class Eagle3Activations {
 private:
  friend class Eagle3Network;

  at::Tensor tokens_;    // [T] int32 on the device
  RowBuffer embedding_;  // [T, D]
  RowBuffer features_;   // [T, D]
  RowBuffer normed_;     // [T, D] scratch of the norms
  RowBuffer joined_;     // [T, 2 D]
  RowBuffer next_;       // [T, D] g'
  LayerActivations layer_;
};

class Eagle3Tape {
 public:
  // Appends the tokens x_{t+1} of a sequence, from its first pair on, to the batch to come.
  void add_sequence(const int32_t* tokens, int32_t count) {
    sequences_.add_sequence(tokens, count);
  }
  const ops::Batch& batch() const { return sequences_.batch(); }
  void clear() { sequences_.clear(); }

 private:
  friend class Eagle3Network;

  TapeBatch sequences_;
  at::Tensor captured_;  // [T, 3 D] as given
  Eagle3Activations passed_;
  RowBuffer last_normed_;  // [T, D]
  RowBuffer d_stream_;     // [T, D] gradient of g', then of g
  RowBuffer d_joined_;     // [T, 2 D]
  RowBuffer d_normed_;     // [T, D] one half of it
  RowBuffer d_embedding_;  // [T, D] goes nowhere: the embedding is the target's
  LayerScratch scratch_;
};

}  // namespace tlt::model

// DraftActivations: the working memory of DraftNetwork::forward for the engine. It is kept between
// calls, so that a draft step does not allocate.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "drafter/eagle/draft_network.h"

namespace tlt::drafter {

// Activations of a pass of either kind of network; buffers that it does not need stay empty.
struct DraftPass {
  model::RowBuffer joined;          // [T, 2 D] embedding and feature; EAGLE-3: both normed
  model::RowBuffer stream;          // [T, D] input of the layer: z; EAGLE-3: the features
  model::RowBuffer next;            // [T, D] output of the layer
  model::RowBuffer read;            // [T, D] input of the LM head; EAGLE-3
  const at::Tensor* out = nullptr;  // read or next; only in training
  model::RowBuffer embedding;       // [T, D]
  model::RowBuffer normed;          // [T, D] EAGLE-3, scratch of the norms
  model::LayerActivations layer;
};

class DraftActivations {
 public:
  // Memory for passes of up to max_rows token rows; longer ones grow it.
  DraftActivations(const DraftNetwork& network, int64_t max_rows);

 private:
  friend class DraftNetwork;

  model::RowBuffer projected_;  // [T, D] features
  model::RowBuffer read_;       // [n, D]
  DraftPass pass_;
};

}  // namespace tlt::drafter

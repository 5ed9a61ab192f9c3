// DraftActivations: the working memory of DraftNetwork::forward for the engine; kept between calls,
// so that a draft step allocates nothing.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/draft_network.h"

namespace tlt::model {

class DraftActivations {
 public:
  // Memory for passes of up to max_rows rows; longer ones grow it.
  DraftActivations(const DraftNetwork& network, int64_t max_rows);

 private:
  friend class DraftNetwork;

  at::Tensor tokens_;  // [T] int32 on the device
  RowBuffer joined_;   // [T, 2 D]
  RowBuffer stream_;   // [T, D] z, then h'
  LayerActivations layer_;
};

}  // namespace tlt::model

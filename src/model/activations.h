// Activations: the working memory of PolicyModel::forward for the engine; kept between calls, so
// that a decode step allocates nothing.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/policy_model.h"

namespace tlt::model {

class Activations {
 public:
  // Memory for passes of up to max_rows rows; longer ones grow it.
  Activations(const PolicyModel& model, int64_t max_rows);

 private:
  friend class PolicyModel;

  RowBuffer residual_;  // [T, D]
  RowBuffer hidden_;    // [T, D]
  at::Tensor tokens_;   // [T] int32 on the device
  LayerActivations layer_;
};

}  // namespace tlt::model

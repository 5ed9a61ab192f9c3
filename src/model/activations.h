// Activations: the working memory of PolicyModel::forward for the engine; kept between calls, so
// that a decode step allocates nothing.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "model/policy_model.h"

namespace tlt::model {

class Activations {
 public:
  // Memory for passes of up to max_rows rows; longer ones grow it.
  Activations(const PolicyModel& model, int64_t max_rows);

  // From now on forward keeps what goes into these layers, and behind the last one (index L) the
  // final states: captured() [T, layers D], one beside the other, valid until the next pass;
  // undefined when there are none. What an EAGLE-3 drafter is shown.
  void capture(std::vector<int64_t> layers) { captured_layers_ = std::move(layers); }
  const at::Tensor& captured() { return captured_.view(); }

 private:
  friend class PolicyModel;

  RowBuffer residual_;  // [T, D]
  RowBuffer hidden_;    // [T, D]
  LayerActivations layer_;
  std::vector<int64_t> captured_layers_;
  RowBuffer captured_;
};

}  // namespace tlt::model

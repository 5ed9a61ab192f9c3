// trained_parameters: what an optimizer changes: an adapter's matrices, or all weights of a model.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "model/policy_model.h"
#include "train/lora.h"

namespace tlt::train {

// adapter: null for the model's weights.
inline const std::vector<model::Parameter>& trained_parameters(const model::PolicyModel& model,
                                                               const LoraAdapter* adapter) {
  return adapter ? adapter->parameters() : model.parameters();
}

}  // namespace tlt::train

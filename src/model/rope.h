// The angles of rotary position embedding (RoFormer; Llama 3's scaling as in transformers'
// _compute_llama3_parameters).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "model/model_config.h"

namespace tlt::model {

// [positions, H] float32: cosine then sine of the H / 2 angles of each position.
at::Tensor rope_table(const RopeConfig& rope, int64_t head_size, int64_t positions);

}  // namespace tlt::model

// The angles of rotary position embedding (RoFormer), with the scalings linear, llama3 and yarn as
// in transformers' modeling_rope_utils.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "model/model_config.h"
#include "ops/batch.h"
#include "runtime/device.h"

namespace tlt::model {

// [positions, H] float32: cosine, then sine, of the H / 2 angles of each position, times the
// attention factor.
at::Tensor rope_table(const RopeConfig& rope, int64_t head_size, int64_t positions);

// The table of one model: grows to the largest position that is needed, and never shrinks.
class RopeTable {
 public:
  RopeTable(const RopeConfig& rope, int64_t head_size) : rope_(rope), head_size_(head_size) {}

  // As rope_table(), on the device, up to the batch's last position or further.
  const at::Tensor& reach(const Device& device, const ops::Batch& batch);

 private:
  RopeConfig rope_;
  int64_t head_size_;
  at::Tensor table_;
};

}  // namespace tlt::model

// Attention by the kernels of a device other than the CPU (ops/cuda/kernels.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/attention.h"

namespace tlt::ops {

// attention() of ops/attention.h. False, and nothing is done: the device has no kernels, or none of
// this shape.
[[nodiscard]] bool try_device_attention(const Device& device, const AttentionRows& rows,
                                        const at::Tensor& qkv, const AttentionOutput& output);

// The same of attention_backward().
[[nodiscard]] bool try_device_attention_backward(const Device& device, const AttentionRows& rows,
                                                 const RopeStore& rope,
                                                 const AttentionGradient& gradient);

}  // namespace tlt::ops

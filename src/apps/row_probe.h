// The batch invariance check of `tlt doctor`: on this processor the result of a token row must be
// the same bits in any batch, through every operation of a small decoder: products, norms, RoPE,
// attention, LM head.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tlt::apps {

// Empty: all rows are equal; otherwise describes the first difference.
std::string first_row_difference(at::ScalarType type);

}  // namespace tlt::apps

// The probe of `tlt doctor`: whether on this processor a row's result is the same bits alone and in
// company, through every operation of a small decoder: products, norms, rotation, attention, head.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tlt::apps {

// Empty when all rows are equal; else where the first differs.
std::string first_row_difference(at::ScalarType type);

}  // namespace tlt::apps

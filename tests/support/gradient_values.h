// gradient_values: a copy of some gradients of a view, for tests.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>

#include "train/gradient_view.h"

namespace tlt::tests {

// Elements first … last-1 of a parameter.
inline at::Tensor gradient_values(const train::GradientView& view, size_t parameter, int64_t first,
                                  int64_t last) {
  at::Tensor values;
  view.read({train::Bucket{{parameter, first, last}}},
            [&](const train::Bucket&, const at::Tensor& part) { values = part.clone(); });
  return values;
}

}  // namespace tlt::tests

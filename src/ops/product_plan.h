// ProductPlan: how a device other than the CPU multiplies rows by one matrix, so that a row's bits
// depend on that row and the matrix only (device_product.h). It belongs to the matrix, never to the
// number of rows.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tlt::ops {

struct ProductPlan {
  // Slices that the sum of a product is cut into, which are added in order. A narrow matrix has
  // too few columns to occupy a card otherwise.
  int64_t slices = 1;
  // Fewer rows are padded to this number.
  int64_t least_rows = 1;

  bool operator==(const ProductPlan&) const = default;
};

// Of a weight [N, K]: x W^T, and dy W.
struct ProductPlans {
  ProductPlan forward, backward;
};

}  // namespace tlt::ops

// Tries a device's products with a matrix of given sizes, at every number of rows that
// device_product() calls its library with: the bits of a row must be those of a call of 512 rows.
//
// Operands whose products cancel are tried: what is left of a sum are the errors of its roundings,
// which differ when the order of the additions does, even where the result is rounded to bfloat16.
//
// Threading  the thread that drives the device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ops/product_plan.h"

namespace tlt::ops {

// The plan of a forward product before any trial: slices where a matrix is narrow for a card. Its
// right operand is [sum, columns].
ProductPlan first_plan(int64_t sum, int64_t columns);

// The products that a matrix is for: x W^T with any extras, or dy W.
enum class ProductKind { kForward, kBackward };

// Fewest slices and padding with which rows do not depend on the number of rows; nullopt: none does
// it. `right` [R, C] is overwritten. counts: the numbers of rows that are tried, rising, with 512;
// to be sure, row_counts(C).
std::optional<ProductPlan> find_plan(const at::Tensor& right, ProductKind kind,
                                     std::span<const int64_t> counts);

// The plans of a weight on its device, [N, K], which is zeros before and after. Tried once for each
// size, type and device in a process, on a card at all row_counts(); on the devices of tests, which
// multiply slowly, at some. InputError with the size: rows depend on the number of rows.
ProductPlans plan_products(at::Tensor& weight);

// "[3584, 18944] bfloat16".
std::string name_of_matrix(const at::Tensor& weight);

}  // namespace tlt::ops

// The batch invariance checks of `tlt doctor`: on a device the result of a token row must be the
// same bits in any batch, through every operation of a small decoder: products, norms, RoPE,
// attention, LM head; and off the CPU in the products with every weight of a model.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ops/weight.h"
#include "simulate/model_shapes.h"

namespace tlt::apps {

// Empty: all rows are equal; otherwise describes the first difference.
std::string first_row_difference(const Device& device, at::ScalarType type);

struct TriedMatrix {
  std::string name;  // "qkv [4608, 3584] bfloat16"
  std::string text;  // how its products are made so that rows keep their bits; or why not
  bool is_good = false;
};

// The products of the device with each weight of a model of this shape (ops/product_probe.h).
// REQUIRES: the device is not the CPU.
std::vector<TriedMatrix> try_products(const Device& device, at::ScalarType type,
                                      const simulate::ModelShape& shape);

}  // namespace tlt::apps

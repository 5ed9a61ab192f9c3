// Weight: a matrix [N, K] in the layout that its device multiplies fastest; the only copy of it.
//
// On the CPU the columns of the product are in panels of 64: panel p holds rows 64 p .. 64 p + 63
// of the matrix as [K / u, 64, u] with u = 2 for bfloat16 (the pair one vdpbf16ps takes) and u = 1
// for float32; rows past N are zero. On other devices it is a row-major tensor.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "ops/product_plan.h"
#include "runtime/device.h"

namespace tlt::ops {

class Weight {
 public:
  static constexpr int64_t kPanel = 64;

  Weight() = default;
  // Zeros. REQUIRES: columns is even. InputError: products with such a matrix depend on the number
  // of rows on this device (product_probe.h).
  Weight(const Device& device, int64_t rows, int64_t columns, at::ScalarType type);

  int64_t rows() const { return rows_; }        // N
  int64_t columns() const { return columns_; }  // K
  at::ScalarType type() const { return type_; }

  // Sets rows first_row .. first_row + values.size(0) from float32 or compute-type values [n, K],
  // rounding to type().
  void assign(const Device& device, const at::Tensor& values, int64_t first_row = 0);

  // Sets all values from columns first_column .. first_column + columns() of `whole`, which has as
  // many rows. REQUIRES: first_column is even.
  void assign_columns(const Weight& whole, int64_t first_column);

  // A row-major copy [n, K] in type(), of rows first_row .. first_row + n.
  at::Tensor values(const Device& device, int64_t first_row, int64_t n) const;
  at::Tensor values(const Device& device) const { return values(device, 0, rows_); }

  // out[i] = row tokens[i]: the embedding of tied models. out [T, K].
  void gather(const Device& device, std::span<const int32_t> tokens, at::Tensor& out) const;

  // The storage, in the device's layout.
  const at::Tensor& storage() const { return storage_; }

  // How products with it are made; for devices other than the CPU.
  const ProductPlans& plans() const { return plans_; }

 private:
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  at::ScalarType type_ = at::kFloat;
  at::Tensor storage_;  // cpu: [panels, K / u, 64, u]; else [N, K]
  ProductPlans plans_;
};

}  // namespace tlt::ops

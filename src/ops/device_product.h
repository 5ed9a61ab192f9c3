// Matrix products on devices other than the CPU, by the device's BLAS library.
//
// A library chooses its kernel by the sizes of a call, and another kernel adds in another order. So
// that a row's bits depend on that row and the matrix only, whatever the number of rows:
//
//   - a call has one of few numbers of rows (row_counts): fewer are padded, more are cut;
//   - the sum is never split but into the slices of the matrix's plan, by a batched product
//     [S, M, R / S] x [S, R / S, C] whose results are added in order;
//   - product_probe.h has compared all these calls bit by bit.
//
// An output is rounded once: bias and residual are added to the float32 sum before.
//
// Threading  the thread that drives the device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/linear.h"
#include "ops/product_plan.h"

namespace tlt::ops {

struct DeviceProduct {
  const at::Tensor& x;      // [M, R]
  const at::Tensor& right;  // [R, C]: a weight or its transposed view
  ProductPlan plan;
};

// out = x right (+ bias) (+ residual).  out [M, C] of x's type or float32; residual of out's type.
void device_product(const DeviceProduct& product, at::Tensor& out, const LinearExtras& extras = {});

// The numbers of rows of the calls for a matrix of these columns: the padded ones, then multiples
// of 512.
std::vector<int64_t> row_counts(int64_t columns);

// sum += a b in float32, not rounded to the type of a and b. a [N, T], b [T, K], sum [N, K].
void add_product(const at::Tensor& a, const at::Tensor& b, at::Tensor& sum);

}  // namespace tlt::ops

// The matrix products of the network, with one arithmetic for every caller: an output is one
// float32 accumulator that takes the products in order of K. A row's result depends on that row and
// the weight only: not on the number of rows in the call or of threads. Engine and trainer get the
// same bits.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/weight.h"

namespace tlt::ops {

struct LinearExtras {
  const at::Tensor* bias = nullptr;  // [N] float32, added to the accumulator
  // [T, N] of the output's type, added before rounding; may be `out` itself.
  const at::Tensor* residual = nullptr;
};

// out = x W^T (+ bias) (+ residual).  x [T, K] of w's type; out [T, N] of w's type or float32.
void linear(const Device& device, const at::Tensor& x, const Weight& w, at::Tensor& out,
            const LinearExtras& extras = {});

// gate_up = x W^T, out = swiglu(gate_up) (elementwise.h), without a barrier in between where each
// panel of 64 columns holds either gates or ups.  x [T, K], gate_up [T, 2F], out [T, F], all of w's
// type.
void gated_linear(const Device& device, const at::Tensor& x, const Weight& w, at::Tensor& gate_up,
                  at::Tensor& out);

// dx = dy W.  dy [T, N], dx [T, K], both of w's type. `accumulate`: dx += instead.
void linear_backward_input(const Device& device, const at::Tensor& dy, const Weight& w,
                           at::Tensor& dx, bool accumulate = false);

// dw += dy^T x in float32, and dbias += column sums of dy; each only where given (defined).
// dy [T, N], x [T, K], dw [N, K].
void linear_backward_weight(const Device& device, const at::Tensor& dy, const at::Tensor& x,
                            at::Tensor& dw, at::Tensor* dbias = nullptr);

}  // namespace tlt::ops

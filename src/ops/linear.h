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

// The product over each of S equal slices of K: parts[s] = x_s W_s^T with the columns of slice s.
// Tensor parallel: part s has the bits that linear() gives for W_s as a weight of its own.
// x [T, K] of w's type; parts [S, T, N] float32. REQUIRES: S divides K, and K / S is even.
void linear_slices(const Device& device, const at::Tensor& x, const Weight& w, at::Tensor& parts);

// out = parts[0] + parts[1] + … + residual, in this order in float32, rounded once.
// parts [S, T, N] float32; residual and out [T, N] of one type, may be the same tensor; an undefined
// residual is left out.
void add_slices(const Device& device, const at::Tensor& parts, const at::Tensor& residual,
                at::Tensor& out);

// dx = dy W.  dy [T, N], dx [T, K], both of w's type. `accumulate`: dx += instead.
void linear_backward_input(const Device& device, const at::Tensor& dy, const Weight& w,
                           at::Tensor& dx, bool accumulate = false);

// dw += dy^T x in float32, and dbias += column sums of dy; each only where given (defined).
// dy [T, N], x [T, K], dw [N, K].
void linear_backward_weight(const Device& device, const at::Tensor& dy, const at::Tensor& x,
                            at::Tensor& dw, at::Tensor* dbias = nullptr);

}  // namespace tlt::ops

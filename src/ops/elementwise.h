// The row-wise operations between the matrix products: norm and gated activation, and their
// gradients. Each row's result depends on that row alone.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "runtime/device.h"

namespace tlt::ops {

// out = x / sqrt(mean(x^2) + epsilon) * weight, in float32 inside.  x, out [T, D]; weight [D]
// float32.
void rms_norm(const Device& device, const at::Tensor& x, const at::Tensor& weight, double epsilon,
              at::Tensor& out);

struct RmsNormGradient {
  const at::Tensor& dy;      // [T, D]
  const at::Tensor& x;       // [T, D]
  const at::Tensor& weight;  // [D] float32
  double epsilon;
  at::Tensor& dx;       // [T, D], accumulated
  at::Tensor& dweight;  // [D] float32, accumulated where it is defined
};
void rms_norm_backward(const Device& device, const RmsNormGradient& gradient);

// out [T, F] = silu(gate) * up, of gate_up [T, 2F] = gate then up.
void swiglu(const Device& device, const at::Tensor& gate_up, at::Tensor& out);

// d_gate_up [T, 2F] from d_out [T, F].
void swiglu_backward(const Device& device, const at::Tensor& d_out, const at::Tensor& gate_up,
                     at::Tensor& d_gate_up);

// out[i] = table[tokens[i]]: embeddings that are not tied to the LM head.
void embed(const Device& device, const at::Tensor& table, std::span<const int32_t> tokens,
           at::Tensor& out);

// dtable[tokens[i]] += dx[i], in order of i. dtable [V, D] float32.
void embed_backward(const Device& device, const at::Tensor& dx, std::span<const int32_t> tokens,
                    at::Tensor& dtable);

// out[i] = x[rows[i]].
void gather_rows(const Device& device, const at::Tensor& x, std::span<const int64_t> rows,
                 at::Tensor& out);

// out[:, first … first + N - 1] = x [T, N].
void put_columns(const Device& device, const at::Tensor& x, at::Tensor& out, int64_t first);

}  // namespace tlt::ops

// The body of every operation in plain ATen: runs on devices without kernels of our own, and is the
// reference that the kernels are tested against. Not fast and not row-invariant; the arithmetic
// that the public headers specify is the CPU kernels'.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace tlt::ops::aten {

// On the device [T] int64: what index_select and index_put_ take.
at::Tensor indices(std::span<const int32_t> tokens, const Device& device);

void linear(const at::Tensor& x, const at::Tensor& w, at::Tensor& out, const LinearExtras& extras);
void linear_slices(const at::Tensor& x, const at::Tensor& w, at::Tensor& parts);
// out [M, C] = the sum of slices [S, >= M, C] in order, + bias + residual where given; rounded once.
void add_slices(const at::Tensor& slices, const LinearExtras& extras, at::Tensor& out);
void linear_backward_input(const at::Tensor& dy, const at::Tensor& w, at::Tensor& dx,
                           bool accumulate);
void linear_backward_weight(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                            at::Tensor* dbias);

void rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::Tensor& out);
void rms_norm_backward(const RmsNormGradient& gradient);
void swiglu(const at::Tensor& gate_up, at::Tensor& out);
void swiglu_backward(const at::Tensor& d_out, const at::Tensor& gate_up, at::Tensor& d_gate_up);

struct Slot {
  int64_t page, slot;
};
// A KV entry of all layers, [L, 2 K H], into a slot of `storage`. Without a copy between host and
// device.
void store_entry(const at::Tensor& storage, const Slot& slot, const at::Tensor& entry);
void rope_and_store(const AttentionRows& rows, const RopeStore& rope, at::Tensor& qkv);
void attention(const AttentionRows& rows, const at::Tensor& qkv, const AttentionOutput& output);
void attention_backward(const AttentionRows& rows, const RopeStore& rope,
                        const AttentionGradient& gradient);

// Gradients of the rotated q, k and v of some rows, float32.
struct RotatedGradient {
  at::Tensor d_q;       // [rows, N, H]
  at::Tensor d_k, d_v;  // [rows, K, H]
};
// gradient.d_qkv of these rows: back through the rotation by `angles` [rows, H] and the norms of
// queries and keys. The tensors of `gradient` are those of these rows.
void rope_backward(const AttentionShape& shape, const RopeStore& rope, const at::Tensor& angles,
                   const RotatedGradient& d, const AttentionGradient& gradient);

}  // namespace tlt::ops::aten

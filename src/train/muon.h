// Muon (Keller Jordan et al., 2024): the direction in which it moves a matrix, with the formulas of
// torch.optim.Muon and adjust_lr_fn="match_rms_adamw" (Liu et al., arXiv 2502.16982):
//
//   B = 0.95 B + 0.05 G                          momentum; G: the clipped gradient
//   U = 0.05 G + 0.95 B                          Nesterov
//   W = (1 - lr decay) W - lr 0.2 sqrt(max(N, K)) orthogonalized(U)
//
// The factor gives the change the size that AdamW's usually has, so learning rates and weight decays
// of AdamW are of use. PyTorch rounds the products of the iteration to bfloat16; here they are
// float32.
//
// Not here   momentum and weights (optimizer.h).
// Threading  uses the device's pool; the result is the same, bit for bit, for any number of threads.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "model/parameter.h"

namespace tlt::train {

inline constexpr float kMuonMomentum = 0.95F;

// Whether Muon trains the parameter: a projection of a layer. Embeddings, LM head, norms and biases
// are AdamW's: their gradients are no maps from one hidden state to another.
bool is_hidden_matrix(const model::Parameter& parameter);

// 0.2 sqrt(max(rows, columns)).
double muon_scale(int64_t rows, int64_t columns);

// A matrix [N, K] near U V^T, where U S V^T is the singular value decomposition of `matrix`: five
// Newton-Schulz iterations with Jordan's quintic bring the singular values to 0.7 … 1.2, except for
// those that are far below the largest. Float32, on the CPU, as `matrix` is.
at::Tensor orthogonalized(const Device& device, const at::Tensor& matrix);

}  // namespace tlt::train

// SPDX-License-Identifier: Apache-2.0
#include "train/muon.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "ops/linear.h"
#include "train/optimizer.h"

namespace tlt::train {
namespace {

constexpr int kIterations = 5;
// Jordan's coefficients of X = a X + b X (X^T X) + c X (X^T X)^2: the largest slope at 0 with which
// the iteration stays bounded.
constexpr float kA = 3.4445F, kB = -4.775F, kC = 2.0315F;
constexpr double kLeastNorm = 1e-7;  // torch's eps: a gradient of zeros stays zeros

// sum += a^T b, each output in the order of the rows (ops/linear.h).
void add_product(const Device& device, const at::Tensor& a, const at::Tensor& b, at::Tensor& sum) {
  ops::linear_backward_weight(device, a, b, sum);
}

at::Tensor gram(const Device& device, const at::Tensor& x) {
  at::Tensor product = device.zeros({x.size(1), x.size(1)}, at::kFloat);
  add_product(device, x, x, product);
  return product;
}

}  // namespace

bool is_hidden_matrix(const model::Parameter& parameter) {
  return parameter.matrix && parameter.name().starts_with("model.layers.");
}

double muon_scale(int64_t rows, int64_t columns) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
}

at::Tensor orthogonalized(const Device& device, const at::Tensor& matrix) {
  double squares = 0;
  add_squares(device, matrix, squares);
  const double norm = std::max(std::sqrt(squares), kLeastNorm);
  // With at least as many rows as columns X^T X is the smaller one of the two Gram matrices.
  const bool is_wide = matrix.size(0) < matrix.size(1);
  at::Tensor x = (is_wide ? matrix.t() : matrix).to(device.torch()).div(norm).contiguous();
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor squared = gram(device, x), fourth = gram(device, squared);  // symmetric
    const at::Tensor polynomial = squared.mul(kB).add(fourth, kC);
    at::Tensor next = x.mul(kA);
    add_product(device, x.t().contiguous(), polynomial, next);
    x = next;
  }
  return (is_wide ? x.t() : x).cpu().contiguous();
}

}  // namespace tlt::train

// Helpers for tests of tensors: random values, comparison with the values in the message,
// tolerances by type.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "runtime/device.h"

namespace tlt::tests {

// Standard normal values from a separate random counter.
inline at::Tensor random_tensor(at::IntArrayRef sizes, at::ScalarType type, uint32_t name,
                                double scale = 1) {
  at::Tensor out = at::empty(sizes, at::kFloat);
  RandomStream random(/*seed=*/7, {.prompt = name});
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<float>()[i] = static_cast<float>(scale * random.normal());
  return out.to(type);
}

inline double tolerance(at::ScalarType type) { return type == at::kBFloat16 ? 2e-2 : 1e-5; }

// |got - want| <= tolerance * (1 + |want|) everywhere; the message has the worst index and both
// values.
inline ::testing::AssertionResult tensors_near(const at::Tensor& got, const at::Tensor& want,
                                               double tolerance) {
  if (got.sizes() != want.sizes())
    return ::testing::AssertionFailure() << "sizes " << got.sizes() << " and " << want.sizes();
  const at::Tensor g = got.to(at::kCPU, at::kDouble).contiguous().flatten(),
                   w = want.to(at::kCPU, at::kDouble).contiguous().flatten();
  double worst = -1;
  int64_t at = 0;
  for (int64_t i = 0; i < g.numel(); ++i) {
    const double x = g.data_ptr<double>()[i], y = w.data_ptr<double>()[i];
    const double error = std::abs(x - y) / (1 + std::abs(y));
    if (!(error <= worst)) worst = error, at = i;
  }
  if (worst <= tolerance) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "element " << at << ": got " << g[at].item<double>() << ", want "
         << w[at].item<double>() << ", relative error " << worst << " > " << tolerance;
}

// |got - want| <= tolerance * the largest |want|.
inline ::testing::AssertionResult near_of_largest(const at::Tensor& got, const at::Tensor& want,
                                                  double tolerance) {
  const double scale = want.abs().max().item<double>();
  return tensors_near(got / scale, want / scale, tolerance);
}

inline ::testing::AssertionResult tensors_equal(const at::Tensor& got, const at::Tensor& want) {
  return tensors_near(got, want, 0);
}

// Copies of all weights of a PolicyModel or a DraftNetwork.
std::vector<at::Tensor> weights_of(const auto& model) {
  std::vector<at::Tensor> weights;
  for (const auto& parameter : model.parameters())
    weights.push_back(parameter.read(model.device()));
  return weights;
}

inline bool all_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

}  // namespace tlt::tests

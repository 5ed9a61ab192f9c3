// The tiny models that an invariant must hold for: each family in each type.
//
//   INSTANTIATE_TEST_SUITE_P(Models, MyInvariant, every_model(), model_name);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/support/tiny_model.h"

namespace tlt::tests {

using ModelCase = std::tuple<model::Family, at::ScalarType>;

inline auto every_model() {
  using model::Family;
  return ::testing::Combine(::testing::Values(Family::kQwen2, Family::kQwen3, Family::kLlama),
                            ::testing::Values(at::kFloat, at::kBFloat16));
}

inline std::string model_name(const ::testing::TestParamInfo<ModelCase>& info) {
  const auto [family, type] = info.param;
  return std::string(name_of(family)) + (type == at::kFloat ? "_float32" : "_bfloat16");
}

}  // namespace tlt::tests

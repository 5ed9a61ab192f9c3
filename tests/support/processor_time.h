// processor_seconds: how long this process works in a call. A busy machine, on which it waits, does
// not change it, so a test can bound it.
//
//   EXPECT_LT(processor_seconds([&] { … }), kFarFromQuadratic);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>

namespace tlt::tests {

// For inputs of which an algorithm with n^2 steps takes minutes, and a linear one less than a
// second: also on a machine that is ten times slower.
inline constexpr double kFarFromQuadratic = 10;

template <class Call>
double processor_seconds(const Call& call) {
  const std::clock_t begin = std::clock();
  call();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

}  // namespace tlt::tests

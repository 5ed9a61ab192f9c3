// Statistics of a list of numbers.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tlt {

// The percentile of `values` at `share`, by nearest rank: the smallest value that at least this
// share of them does not exceed. REQUIRES: not empty.
template <class T>
T percentile(std::vector<T> values, double share) {
  TLT_CHECK(!values.empty());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(std::clamp<size_t>(rank, 1, values.size()) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Of an even number of values: the lower of the two in the middle.
template <class T>
T median(std::vector<T> values) {
  return percentile(std::move(values), 0.5);
}

// Not a number of none.
inline double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace tlt

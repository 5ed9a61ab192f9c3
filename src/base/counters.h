// Sums of statistics. A struct lists its counters in visit(v), which calls v(counter) for each.
//
//   struct Counts {
//     int64_t trees = 0;
//     double seconds = 0;
//     void visit(auto&& v) { v(trees), v(seconds); }
//   };
//   add_counters(sum, counts);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <vector>

namespace tlt {

template <class Stats>
std::vector<double> counters_of(Stats stats) {
  std::vector<double> values;
  stats.visit([&](const auto& counter) { values.push_back(static_cast<double>(counter)); });
  return values;
}

// `stats` with these values in place of its counters.
template <class Stats>
Stats with_counters(Stats stats, const std::vector<double>& values) {
  auto value = values.begin();
  stats.visit([&](auto& counter) {
    counter = static_cast<std::remove_reference_t<decltype(counter)>>(*value++);
  });
  return stats;
}

template <class Stats>
void add_counters(Stats& sum, const Stats& more) {
  const std::vector<double> values = counters_of(more);
  auto value = values.begin();
  sum.visit([&](auto& counter) {
    counter += static_cast<std::remove_reference_t<decltype(counter)>>(*value++);
  });
}

}  // namespace tlt

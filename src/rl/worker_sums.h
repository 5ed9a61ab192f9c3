// sum_over_workers: sums of statistics over the workers. A statistics struct lists its counters in
// visit(v), which calls v(counter) for each.
//
//   struct Counts {
//     int64_t trees = 0;
//     double seconds = 0;
//     void visit(auto&& v) { v(trees), v(seconds); }
//   };
//   const Counts all = sum_over_workers(comm, mine);  // all workers together
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <vector>

#include "cluster/comm.h"

namespace tlt::rl {

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
Stats sum_over_workers(cluster::Comm& comm, const Stats& mine) {
  return with_counters(mine, comm.all_reduce_sum(counters_of(mine)));
}

}  // namespace tlt::rl

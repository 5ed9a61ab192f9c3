// sum_over_workers: sums of statistics (base/counters.h) over the workers.
//
//   const Counts all = sum_over_workers(comm, mine);  // all workers together
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/counters.h"
#include "cluster/comm.h"

namespace tlt::rl {

template <class Stats>
Stats sum_over_workers(cluster::Comm& comm, const Stats& mine) {
  return with_counters(mine, comm.all_reduce_sum(counters_of(mine)));
}

}  // namespace tlt::rl

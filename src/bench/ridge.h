// Ridge: the number of token rows from which on a forward pass is bound by arithmetic and no longer
// by memory (roofline model): matrix peak / memory bandwidth in bfloat16, where a weight of two
// bytes is two FLOP a row. Speculation adds token rows, so it gains below the ridge.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"

namespace tlt::bench {

struct Ridge {
  double bandwidth = 0;  // bytes/s, reading memory
  double peak = 0;       // FLOP/s of matrix products in bfloat16

  double rows() const { return peak / bandwidth; }
};

// Takes about half a second. `device`: the CPU with the threads of a worker.
Ridge measure_ridge(const Device& device);

}  // namespace tlt::bench

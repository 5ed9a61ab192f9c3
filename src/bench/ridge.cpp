// SPDX-License-Identifier: Apache-2.0
#include "bench/ridge.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/clock.h"
#include "bench/machine.h"
#include "ops/linear.h"

namespace tlt::bench {
namespace {

// Of a large pass of training: [T, K] x [N, K].
constexpr int64_t kRows = 1024, kColumns = 1024, kOutputs = 2048;
constexpr int kProducts = 12;

double matrix_peak(const Device& device) {
  const at::Tensor x = device.zeros({kRows, kColumns}, at::kBFloat16);
  const ops::Weight weight(device, kOutputs, kColumns, at::kBFloat16);
  at::Tensor out = device.empty({kRows, kOutputs}, at::kBFloat16);
  double best = 0;
  for (int i = 0; i < kProducts; ++i) {
    const Stopwatch watch;
    ops::linear(device, x, weight, out);
    device.synchronize();
    best = std::max(best, 2.0 * kRows * kColumns * kOutputs / watch.seconds());
  }
  return best;
}

}  // namespace

Ridge measure_ridge(const Device& device) {
  return {.bandwidth = read_bandwidth(device.pool()), .peak = matrix_peak(device)};
}

}  // namespace tlt::bench

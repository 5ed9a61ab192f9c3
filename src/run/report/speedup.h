// Speedup: describes the speedup of decoding with speculation, by number of running sequences and
// with a confidence interval.
//
// Not here   the measurement (replay.h).
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tlt::run {

// Rounds that decode the same sequences with and without speculation.
struct SpeedupRounds {
  int64_t sequences = 0;              // running at the same time
  std::vector<double> ratios = {};    // seconds without / seconds with, one per round
  double speculative_step_share = 0;  // speculative steps / steps, of the engine that may speculate
  double plain_step_seconds = 0;      // median time of an engine step without speculation
};

struct Interval {
  double median = 0, low = 0, high = 0;

  bool holds(double value) const { return low <= value && value <= high; }
};

// The median of the values and its confidence interval of at least 93 %, between order statistics
// (distribution-free). nullopt: fewer than 5 values, for which there is none.
std::optional<Interval> median_interval(std::vector<double> values);

// One sentence per outcome: sizes with a speedup or slowdown and its interval, sizes without a
// measurable difference, sizes without speculation, and what limits it there. Empty: nothing was
// measured.
std::vector<std::string> describe_speedup(const std::vector<SpeedupRounds>& sizes);

}  // namespace tlt::run

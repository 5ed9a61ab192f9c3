// Speedup: what speculation gains in decoding, by the number of running sequences, with an interval
// that says whether the difference can be told from noise.
//
// Not here   the decoding (replay.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tlt::rl {

// Rounds in which the same sequences were decoded with and without speculation.
struct SpeedupRounds {
  int64_t sequences = 0;              // running at the same time
  std::vector<double> ratios = {};    // seconds without / seconds with, one per round
  double speculative_step_share = 0;  // of the engine's steps with speculation allowed
  double plain_step_seconds = 0;      // median, of an engine step without
};

struct Interval {
  double median = 0, low = 0, high = 0;

  bool holds(double value) const { return low <= value && value <= high; }
};

// The median of the values and its interval of at least 93 % confidence, between order statistics
// (distribution-free); nullopt: fewer than 5 values, which have none.
std::optional<Interval> median_interval(std::vector<double> values);

// One sentence about each outcome: faster and slower sizes with their intervals, sizes without a
// measurable difference, and what limits speculation there. Empty: nothing was measured.
std::vector<std::string> describe_speedup(const std::vector<SpeedupRounds>& sizes);

}  // namespace tlt::rl

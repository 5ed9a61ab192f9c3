// SPDX-License-Identifier: Apache-2.0
#include "run/report/speedup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tlt::run {
namespace {

constexpr double kConfidence = 0.93;
constexpr double kSpeculationOff = 0.05;  // off below this share of speculative steps
constexpr double kComputeBound = 0.6;     // compute-bound above this share of linear scaling

// P(the r-th smallest of n values <= median <= the r-th largest).
double coverage(int64_t n, int64_t r) {
  double below = 0, term = std::pow(0.5, static_cast<double>(n));
  for (int64_t k = 0; k < r; ++k) {
    below += term;
    term *= static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  return 1 - 2 * below;
}

std::string list(const std::vector<int64_t>& sizes) {
  std::string out;
  for (size_t i = 0; i < sizes.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : i + 1 == sizes.size() ? " or " : ", ", sizes[i]);
  return out;
}

// Explains why speculation gains less with more sequences: a memory-bound forward pass shares one
// read of the weights between all token rows; a compute-bound one grows with their number.
std::string limit(const SpeedupRounds& one, const SpeedupRounds& many) {
  const double factor = many.plain_step_seconds / one.plain_step_seconds,
               rows = static_cast<double>(many.sequences) / static_cast<double>(one.sequences);
  const bool is_compute = factor - 1 > kComputeBound * (rows - 1);
  return fmt::format("a forward pass for {} sequences takes {:.1f}x as long as for {}: {}-bound",
                     many.sequences, factor, one.sequences, is_compute ? "compute" : "memory");
}

}  // namespace

std::optional<Interval> median_interval(std::vector<double> values) {
  const auto n = std::ssize(values);
  if (n < 5) return std::nullopt;
  std::ranges::sort(values);
  int64_t r = 1;
  while (2 * (r + 1) <= n && coverage(n, r + 1) >= kConfidence) ++r;
  const auto at = [&](int64_t i) { return values[static_cast<size_t>(i)]; };
  return Interval{(at((n - 1) / 2) + at(n / 2)) / 2, at(r - 1), at(n - r)};
}

std::vector<std::string> describe_speedup(const std::vector<SpeedupRounds>& sizes) {
  std::string different;
  std::vector<int64_t> same, off;
  for (const SpeedupRounds& size : sizes) {
    const std::optional<Interval> interval = median_interval(size.ratios);
    if (size.speculative_step_share < kSpeculationOff) {
      off.push_back(size.sequences);
    } else if (!interval || interval->holds(1)) {
      same.push_back(size.sequences);
    } else {
      different += fmt::format("{}{:.2f}x ({:.2f}-{:.2f}) with {}", different.empty() ? "" : ", ",
                               interval->median, interval->low, interval->high, size.sequences);
    }
  }
  std::vector<std::string> lines;
  if (!different.empty()) lines.push_back(different + " running sequences");
  if (!same.empty())
    lines.push_back("not measurable with " + list(same) + " running sequences: within the noise");
  if (!off.empty())
    lines.push_back("none with " + list(off) +
                    " running sequences: the tuner turns speculation off there");
  if (!off.empty() && sizes.size() > 1 && sizes.front().plain_step_seconds > 0)
    lines.push_back(limit(sizes.front(), sizes.back()));
  return lines;
}

}  // namespace tlt::run

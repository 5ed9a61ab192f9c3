// SPDX-License-Identifier: Apache-2.0
#include "rl/advantages.h"

#include <cmath>
#include <numeric>

namespace tlt::rl {

std::vector<double> group_advantages(const AlgorithmOptions& options,
                                     std::span<const double> scores) {
  std::vector<double> advantages(scores.begin(), scores.end());
  if (scores.size() < 2) return advantages;
  const auto n = static_cast<double>(scores.size());
  const double mean = std::accumulate(scores.begin(), scores.end(), 0.0) / n;
  double squares = 0;
  for (double& advantage : advantages) {
    advantage -= mean;
    squares += advantage * advantage;
  }
  if (options.norm_adv_by_std_in_grpo)
    for (double& advantage : advantages) advantage /= std::sqrt(squares / (n - 1)) + 1e-6;
  return advantages;
}

}  // namespace tlt::rl

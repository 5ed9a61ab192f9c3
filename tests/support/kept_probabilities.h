// Reference for truncated sampling: the probabilities of the tokens that top-k, top-p and min-p
// keep, by the definition of each, in float64. logits [V].
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "ops/sampling_rule.h"

namespace tlt::tests {

inline std::map<int32_t, double> kept_probabilities(const at::Tensor& logits,
                                                    const ops::SamplingRule& rule) {
  const auto vocabulary = static_cast<size_t>(logits.size(0));
  std::vector<int32_t> order(vocabulary);
  std::iota(order.begin(), order.end(), 0);
  std::vector<double> p(vocabulary);
  double sum = 0;
  for (size_t i = 0; i < vocabulary; ++i)
    sum += p[i] = std::exp(logits[static_cast<int64_t>(i)].item<double>() / rule.temperature);
  for (double& x : p) x /= sum;
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return p[a] > p[b]; });
  if (rule.top_k > 0) order.resize(std::min<size_t>(order.size(), rule.top_k));
  double mass = 0, reached = 0;
  for (const int32_t i : order) mass += p[i];
  std::map<int32_t, double> kept;
  for (const int32_t i : order) {
    if (!kept.empty() && rule.top_p < 1 && reached >= rule.top_p * mass) break;
    reached += p[i];
    if (kept.empty() || p[i] >= rule.min_p * p[order[0]]) kept[i] = p[i];
  }
  double total = 0;
  for (const auto& [i, x] : kept) total += x;
  for (auto& [i, x] : kept) x /= total;
  return kept;
}

}  // namespace tlt::tests

// Advantages: how much better a response was than its siblings.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/options.h"

namespace tlt::rl {

struct AlgorithmOptions {
  std::string adv_estimator = "grpo";
  bool norm_adv_by_std_in_grpo = true;

  void visit(auto& v) {
    v(adv_estimator, "adv_estimator", Affects::kResults, "How rewards become advantages: grpo.");
    v(norm_adv_by_std_in_grpo, "norm_adv_by_std_in_grpo", Affects::kResults,
      "Divide by the group's standard deviation (GRPO); false: as in Dr. GRPO.");
  }
  void check() const {
    TLT_CHECK_INPUT(adv_estimator == "grpo", "algorithm.adv_estimator is '", adv_estimator,
                    "'; use grpo");
  }
};

// GRPO (DeepSeekMath, eq. 3): (score - mean) / (standard deviation + 1e-6) of the group, as verl:
// the deviation has n - 1 below, and a group of one keeps its score.
std::vector<double> group_advantages(const AlgorithmOptions& options,
                                     std::span<const double> scores);

}  // namespace tlt::rl

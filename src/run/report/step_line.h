// StepLine: the main metrics of a step, and its line on the console.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/metrics.h"

namespace tlt::run {

// Returns the metrics of a step with main/… in front: the few to look at first, copied from other
// metrics unless already set.
Metrics with_main(const Metrics& metrics);

struct StepPlace {
  int64_t step = 0, total = 0;
  std::optional<double> eta_seconds = {};  // until the end of the run
};

// One line for an RL or train step and one for a validation, with the values that `metrics` has;
// columns are aligned from step to step.
std::vector<std::string> step_lines(const StepPlace& position, const Metrics& metrics);

}  // namespace tlt::run

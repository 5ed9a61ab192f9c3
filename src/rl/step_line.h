// StepLine: what a step tells a person: the main metrics and one line on the console.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/metrics.h"

namespace tlt::rl {

// The metrics of a step with main/… in front: the handful to look at first, from the others where
// they are not set.
Metrics with_main(const Metrics& metrics);

struct StepPlace {
  int64_t step = 0, total = 0;
  std::optional<double> eta_seconds = {};  // until the end of the run
};

// One line for a train step and one for a validation, of what the metrics have, aligned from step
// to step, as short as it can be.
std::vector<std::string> step_lines(const StepPlace& place, const Metrics& metrics);

}  // namespace tlt::rl

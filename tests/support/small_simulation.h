// Small simulations for tests: options with a long tail, and the steps of a way.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "simulate/simulation.h"

namespace tlt::tests {

inline simulate::SimulateOptions small_simulation() {
  simulate::SimulateOptions options;
  options.workers = 4;
  options.train_batch_size = 16;
  options.n = 8;
  options.total_training_steps = 2;
  options.max_response_length = 8192;
  options.lengths = "lognormal:800,8000";
  return options;
}

inline std::vector<simulate::StepReport> run_simulation(const simulate::SimulateOptions& options,
                                                        const std::string& way) {
  simulate::Simulation simulation(options, simulate::find_way(way));
  std::vector<simulate::StepReport> steps;
  while (!simulation.is_done()) steps.push_back(simulation.run_step());
  return steps;
}

}  // namespace tlt::tests

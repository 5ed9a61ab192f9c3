// Comparison: the ways to decode side by side, on the same responses.
//
// Threading  pure functions.
//
//   const std::vector<WayResult> results = compare_ways(options);
//   fmt::print("{}{}\n", to_table(results), sentence(options, results));
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "simulate/simulate_options.h"
#include "simulate/simulation.h"
#include "simulate/ways.h"

namespace tlt::simulate {

struct WayResult {
  std::string way;
  int64_t steps = 0;
  StepReport sum;                                // of the steps
  double rollout_speedup = 1, step_speedup = 1;  // relative to the first way

  double mean(double value) const { return value / static_cast<double>(steps); }
  double idle_share() const { return sum.idle / (sum.idle + sum.decoding); }
};

// options.ways in order. The observer gets the last one.
std::vector<WayResult> compare_ways(const SimulateOptions& options,
                                    const Simulation::Observer& observer = {});

std::string to_table(const std::vector<WayResult>& results);
nlohmann::ordered_json to_json(const SimulateOptions& options, const WayResult& result);

// "at 64 sequences per worker on H100 (ridge 295 rows) tlt makes rollouts 1.9 times and steps 1.5
// times as fast as plain".
std::string sentence(const SimulateOptions& options, const std::vector<WayResult>& results);

// How the last way's step speedup changes when an input is 20 % smaller and 25 % larger, the most
// influential input first.
struct Sensitivity {
  std::string option;
  double smaller = 0, larger = 0;  // step speedups
};
std::vector<Sensitivity> sensitivities(const SimulateOptions& options);

// "workers=8,64" as the overrides of a sweep; several sweeps give all combinations. InputError: no
// values.
std::vector<std::vector<std::string>> sweep_points(const std::vector<std::string>& sweeps);

}  // namespace tlt::simulate

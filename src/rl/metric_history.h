// MetricHistory: the metrics of a run by step, as its metrics.jsonl has them.
//
// Threading  thread-compatible.
//
//   const MetricHistory history(folder + "/metrics.jsonl");
//   history.points("critic/score/mean");      // (1, 0.43), (2, 0.47) …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tlt::rl {

// Scores are shown as means of this many steps: a single step's noise hides what a run does.
inline constexpr size_t kMeanSteps = 5;

// (step, value), in order of steps.
using Points = std::vector<std::pair<double, double>>;

class MetricHistory {
 public:
  // InputError when the file cannot be read.
  explicit MetricHistory(const std::string& file);

  // Empty: there is no such metric. Values that are not finite are left out.
  const Points& points(const std::string& name) const;
  double sum(const std::string& name) const;
  // The names that begin with `prefix`, sorted.
  std::vector<std::string> names(const std::string& prefix) const;

 private:
  std::map<std::string, Points> metrics_;
};

}  // namespace tlt::rl

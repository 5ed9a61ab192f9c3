// MetricHistory: the metrics of a run by step, read from its metrics.jsonl.
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

namespace tlt::run {

// Charts and summary average scores over this many steps, because single steps are noisy.
inline constexpr size_t kMeanSteps = 5;

// (step, value), ordered by step.
using Points = std::vector<std::pair<double, double>>;

class MetricHistory {
 public:
  // Throws InputError if the file cannot be read.
  explicit MetricHistory(const std::string& file);

  // Empty if there is no such metric. Non-finite values are left out.
  const Points& points(const std::string& name) const;
  double sum(const std::string& name) const;
  // The names that begin with `prefix`, sorted.
  std::vector<std::string> names(const std::string& prefix) const;

 private:
  std::map<std::string, Points> metrics_;
};

}  // namespace tlt::run

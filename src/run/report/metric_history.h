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
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "run/report/left_out.h"

namespace tlt::run {

// The summary averages scores over this many steps, because single steps are noisy.
inline constexpr size_t kMeanSteps = 5;

// (step, value), ordered by step.
using Points = std::vector<std::pair<double, double>>;

class MetricHistory {
 public:
  // Limits of a file: names, and values of all names.
  static constexpr size_t kMaxNames = 5'000;
  static constexpr int64_t kMaxValues = 20'000'000;

  // Throws InputError if the file cannot be read; damaged rows are left out.
  explicit MetricHistory(const std::string& file);

  // Empty if there is no such metric. Non-finite values are left out.
  const Points& points(const std::string& name) const;
  double sum(const std::string& name) const;
  // The names that begin with `prefix` (all: ""), sorted.
  std::vector<std::string> names(const std::string& prefix) const;

  const LeftOut& left_out() const { return left_out_; }

 private:
  bool try_add(const nlohmann::json& row, const std::string& file);

  std::map<std::string, Points> metrics_;
  double last_step_ = -std::numeric_limits<double>::infinity();
  int64_t values_ = 0;
  LeftOut left_out_;
};

// The held-out score by step: over all data sources, or of the first source if the metrics have
// scores by source only.
Points held_out_score(const MetricHistory& history);

// The acceptance length on held-out responses by step, of the draft model in use after the step.
Points offline_acceptance(const MetricHistory& history);

}  // namespace tlt::run

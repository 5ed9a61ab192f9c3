// SPDX-License-Identifier: Apache-2.0
#include "run/report/metric_history.h"

#include <nlohmann/json.hpp>

#include "base/json_lines.h"

namespace tlt::run {

MetricHistory::MetricHistory(const std::string& file) {
  JsonLinesReader reader(file);
  nlohmann::json row;
  while (reader.try_next(row)) {
    if (!row.is_object()) continue;
    const nlohmann::json& step = row["step"];
    if (!step.is_number()) continue;
    for (const auto& [name, value] : row.items())
      if (value.is_number() && name != "step") metrics_[name].emplace_back(step, value);
  }
}

const Points& MetricHistory::points(const std::string& name) const {
  static const Points none;
  const auto found = metrics_.find(name);
  return found == metrics_.end() ? none : found->second;
}

double MetricHistory::sum(const std::string& name) const {
  double sum = 0;
  for (const auto& [step, value] : points(name)) sum += value;
  return sum;
}

std::vector<std::string> MetricHistory::names(const std::string& prefix) const {
  std::vector<std::string> names;
  for (auto it = metrics_.lower_bound(prefix);
       it != metrics_.end() && it->first.starts_with(prefix); ++it)
    names.push_back(it->first);
  return names;
}

}  // namespace tlt::run

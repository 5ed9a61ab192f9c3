// SPDX-License-Identifier: Apache-2.0
#include "run/report/metric_history.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tlt::run {
namespace {

constexpr int64_t kMaxMetricRowBytes = int64_t{1} << 20;

}  // namespace

MetricHistory::MetricHistory(const std::string& file) {
  for_each_row(file, kMaxMetricRowBytes, left_out_,
               [&](nlohmann::json& row) { return try_add(row, file); });
}

// False: a limit is reached.
bool MetricHistory::try_add(const nlohmann::json& row, const std::string& file) {
  const double step = row.at("step");  // throws what for_each_row() reports
  if (step <= last_step_) {
    left_out_.add(
        fmt::format("{}: a row of step {:g} after one of step {:g}", file, step, last_step_));
    return true;
  }
  last_step_ = step;
  for (const auto& [name, value] : row.items()) {
    if (!value.is_number() || name == "step") continue;
    auto found = metrics_.find(name);
    if (found == metrics_.end()) {
      if (metrics_.size() >= kMaxNames) {
        left_out_.add(fmt::format("{}: more than {} metrics; those after step {:g} are left out",
                                  file, kMaxNames, step));
        return false;
      }
      found = metrics_.emplace(name, Points{}).first;
    }
    found->second.emplace_back(step, value);
    ++values_;
  }
  if (values_ < kMaxValues) return true;
  left_out_.add(fmt::format("{}: more than {} values; those after step {:g} are left out", file,
                            kMaxValues, step));
  return false;
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

Points held_out_score(const MetricHistory& history) {
  if (const Points& all = history.points("main/validation_score"); !all.empty()) return all;
  const std::vector<std::string> sources = history.names("val-core/");
  return sources.empty() ? Points{} : history.points(sources.front());
}

Points offline_acceptance(const MetricHistory& history) {
  const auto by_step = [&](const char* name) {
    const Points& points = history.points(name);
    return std::map<double, double>(points.begin(), points.end());
  };
  const std::map<double, double> published = by_step("drafter/published");
  std::map<double, double> in_use = by_step("drafter/acceptance_length/before");
  for (const auto& [step, value] : history.points("drafter/acceptance_length/after"))
    if (const auto found = published.find(step); found != published.end() && found->second > 0)
      in_use[step] = value;
  return {in_use.begin(), in_use.end()};
}

}  // namespace tlt::run

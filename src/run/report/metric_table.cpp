// SPDX-License-Identifier: Apache-2.0
#include "run/report/metric_table.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace tlt::run {
namespace {

using Json = nlohmann::json;

// Metrics whose highest value in a stretch of steps is kept.
constexpr const char* kPeaks[] = {"critic/score/mean", "actor/grad_norm", "timing_s/step"};
// Metrics of a validation.
constexpr const char* kValidations[] = {"main/validation_score", "main/validation_loss"};
constexpr int64_t kKeptPerStretch = 1 + std::ssize(kPeaks) + std::ssize(kValidations);

std::vector<double> all_steps(const MetricHistory& history) {
  std::set<double> steps;
  for (const std::string& name : history.names(""))
    for (const auto& [step, value] : history.points(name)) steps.insert(step);
  return {steps.begin(), steps.end()};
}

// The points with first <= step < end; an end of nullptr: all that follow.
std::pair<Points::const_iterator, Points::const_iterator> stretch(const Points& points,
                                                                  double first, const double* end) {
  const auto begin = std::ranges::lower_bound(points, first, {}, &Points::value_type::first);
  return {begin, end == nullptr
                     ? points.end()
                     : std::ranges::lower_bound(points, *end, {}, &Points::value_type::first)};
}

// Sums of the metrics up to and including each step.
std::vector<double> running_sum(const MetricHistory& history, const std::vector<double>& steps,
                                const std::vector<const char*>& names) {
  std::map<double, double> by_step;
  for (const char* name : names)
    for (const auto& [step, value] : history.points(name)) by_step[step] += value;
  std::vector<double> sums;
  double sum = 0;
  auto next = by_step.begin();
  for (const double step : steps) {
    for (; next != by_step.end() && next->first <= step; ++next) sum += next->second;
    sums.push_back(sum);
  }
  return sums;
}

Json column(const Points& points, const std::vector<double>& steps) {
  Json at = Json::array(), values = Json::array(), dense = Json::array();
  auto point = points.begin();
  for (size_t i = 0; i < steps.size(); ++i) {
    while (point != points.end() && point->first < steps[i]) ++point;
    if (point == points.end() || point->first != steps[i]) {
      dense.push_back(nullptr);
      continue;
    }
    dense.push_back(point->second);
    at.push_back(i);
    values.push_back(point->second);
  }
  if (at.size() > steps.size() / 2) return dense;
  return {{"at", std::move(at)}, {"values", std::move(values)}};
}

}  // namespace

std::vector<double> choose_steps(const MetricHistory& history, int64_t max_values) {
  const std::vector<double> steps = all_steps(history);
  int64_t values = 0;
  for (const std::string& name : history.names("")) values += std::ssize(history.points(name));
  if (values <= max_values) return steps;
  const auto length =
      static_cast<size_t>(kKeptPerStretch * values / std::max<int64_t>(max_values, 1) + 1);
  std::set<double> kept = {steps.back()};
  for (size_t i = 0; i < steps.size(); i += length) {
    kept.insert(steps[i]);
    const double* end = i + length < steps.size() ? &steps[i + length] : nullptr;
    for (const char* name : kPeaks) {
      const auto [first, last] = stretch(history.points(name), steps[i], end);
      if (first != last)
        kept.insert(std::ranges::max_element(first, last, {}, &Points::value_type::second)->first);
    }
    for (const char* name : kValidations) {
      const auto [first, last] = stretch(history.points(name), steps[i], end);
      if (first != last) kept.insert(std::prev(last)->first);
    }
  }
  return {kept.begin(), kept.end()};
}

nlohmann::json metric_table(const MetricHistory& history, int64_t max_values) {
  const std::vector<double> steps = choose_steps(history, max_values);
  // Tokens of rollouts; in tlt sft and tlt draft, trained tokens.
  const bool has_rollouts = !history.points("rollout/tokens").empty();
  using Names = std::vector<const char*>;
  const Names tokens =
      has_rollouts ? Names{"rollout/tokens"} : Names{"train/tokens", "drafter/tokens"};
  Json columns = Json::object(), sums = Json::object();
  for (const std::string& name : history.names("")) {
    columns[name] = column(history.points(name), steps);
    if (name.starts_with("timing_s/") || name.ends_with("_seconds"))
      sums[name] = {history.sum(name), history.points(name).size()};
  }
  return {
      {"steps", steps},
      {"all_steps", all_steps(history).size()},
      {"tokens", running_sum(history, steps, tokens)},
      {"seconds", running_sum(history, steps,
                              {"timing_s/step", "timing_s/testing", "timing_s/save_checkpoint"})},
      {"columns", std::move(columns)},
      {"sums", std::move(sums)}};
}

}  // namespace tlt::run

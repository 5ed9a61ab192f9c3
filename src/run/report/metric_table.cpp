// SPDX-License-Identifier: Apache-2.0
#include "run/report/metric_table.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>

namespace tlt::run {
namespace {

using Json = nlohmann::json;

constexpr const char* kScore = "critic/score/mean";
constexpr const char* kHeldOutScore = "main/validation_score";
constexpr const char* kHeldOutLoss = "main/validation_loss";
// Metrics whose highest, lowest or last value in a stretch of steps is kept.
constexpr const char* kHighest[] = {kScore, kHeldOutScore, "actor/grad_norm", "timing_s/step"};
constexpr const char* kLowest[] = {kHeldOutLoss};
constexpr const char* kLast[] = {kHeldOutScore, kHeldOutLoss};
constexpr int64_t kKeptPerStretch =
    1 + std::ssize(kHighest) + std::ssize(kLowest) + std::ssize(kLast);
// Metrics of which the page draws means of kMeanSteps steps.
constexpr const char* kMeans[] = {kScore, "main/loss", "timing_s/step",
                                  "rollout/spec_accept_length"};

std::vector<double> all_steps(const MetricHistory& history) {
  std::set<double> steps;
  for (const std::string& name : history.names(""))
    for (const auto& [step, value] : history.points(name)) steps.insert(step);
  return {steps.begin(), steps.end()};
}

// The points with first <= step < end.
std::span<const Points::value_type> stretch(const Points& points, double first, double end) {
  return {std::ranges::lower_bound(points, first, {}, &Points::value_type::first),
          std::ranges::lower_bound(points, end, {}, &Points::value_type::first)};
}

// Adds the steps of a stretch to keep.
void keep_of_stretch(const MetricHistory& history, double first, double end,
                     std::set<double>& kept) {
  kept.insert(first);
  for (const char* name : kHighest)
    if (const auto part = stretch(history.points(name), first, end); !part.empty())
      kept.insert(std::ranges::max_element(part, {}, &Points::value_type::second)->first);
  for (const char* name : kLowest)
    if (const auto part = stretch(history.points(name), first, end); !part.empty())
      kept.insert(std::ranges::min_element(part, {}, &Points::value_type::second)->first);
  for (const char* name : kLast)
    if (const auto part = stretch(history.points(name), first, end); !part.empty())
      kept.insert(part.back().first);
}

// The mean of kMeanSteps points around each one, of fewer at the ends.
Points rolling_mean(const Points& points) {
  constexpr size_t kHalf = kMeanSteps / 2;
  Points means;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t begin = i < kHalf ? 0 : i - kHalf, end = std::min(points.size(), i + kHalf + 1);
    double sum = 0;
    for (size_t k = begin; k < end; ++k) sum += points[k].second;
    means.emplace_back(points[i].first, sum / static_cast<double>(end - begin));
  }
  return means;
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
  for (size_t i = 0; i < steps.size(); i += length)
    keep_of_stretch(
        history, steps[i],
        i + length < steps.size() ? steps[i + length] : std::numeric_limits<double>::infinity(),
        kept);
  const Points& scores = history.points(kScore);
  for (size_t i = 0; i < std::min(kMeanSteps, scores.size()); ++i)
    kept.insert({scores[i].first, scores[scores.size() - 1 - i].first});
  return {kept.begin(), kept.end()};
}

nlohmann::json metric_table(const MetricHistory& history, int64_t max_values) {
  const std::vector<double> steps = choose_steps(history, max_values);
  // Tokens of rollouts; in tlt sft and tlt draft, trained tokens.
  const bool has_rollouts = !history.points("rollout/tokens").empty();
  using Names = std::vector<const char*>;
  const Names tokens =
      has_rollouts ? Names{"rollout/tokens"} : Names{"train/tokens", "drafter/tokens"};
  Json columns = Json::object(), means = Json::object(), sums = Json::object();
  for (const std::string& name : history.names("")) {
    columns[name] = column(history.points(name), steps);
    if (name.starts_with("timing_s/") || name.ends_with("_seconds"))
      sums[name] = {history.sum(name), history.points(name).size()};
  }
  for (const char* name : kMeans)
    if (const Points& points = history.points(name); !points.empty())
      means[name] = column(rolling_mean(points), steps);
  return {
      {"steps", steps},
      {"all_steps", all_steps(history).size()},
      {"tokens", running_sum(history, steps, tokens)},
      {"seconds", running_sum(history, steps,
                              {"timing_s/step", "timing_s/testing", "timing_s/save_checkpoint"})},
      {"columns", std::move(columns)},
      {"means", std::move(means)},
      {"sums", std::move(sums)}};
}

}  // namespace tlt::run

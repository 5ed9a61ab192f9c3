// SPDX-License-Identifier: Apache-2.0
#include "rl/score_alarm.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_lines.h"

namespace tlt::rl {
namespace {

constexpr int64_t kBlock = 3;
constexpr int64_t kLeastPoints = 8;
constexpr double kFallErrors = 5, kRiseErrors = 2;
constexpr double kValidationErrors = 2;

// For normal noise of deviation 1: the median of the absolute difference of two points, and the
// standard error of the difference of two medians of three.
constexpr double kMedianDifference = 0.9539;
constexpr double kBlockError = 0.947;

double mean_median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

void ScoreAlarm::add_training(double score) {
  training_sum_ += score;
  ++training_steps_;
}

ScoreAlarm::Point ScoreAlarm::block(int64_t first) const {
  std::vector<double> training, held_out;
  for (int64_t i = first; i < first + kBlock; ++i) {
    training.push_back(points_[static_cast<size_t>(i)].training);
    held_out.push_back(points_[static_cast<size_t>(i)].held_out);
  }
  return {mean_median(std::move(training)), mean_median(std::move(held_out))};
}

ScoreAlarm::Point ScoreAlarm::deviation(int64_t apart) const {
  std::vector<double> training, held_out;
  for (auto i = static_cast<size_t>(apart); i < points_.size(); ++i) {
    const Point &now = points_[i], &before = points_[i - static_cast<size_t>(apart)];
    training.push_back(std::abs(now.training - before.training));
    held_out.push_back(std::abs(now.held_out - before.held_out));
  }
  return {mean_median(std::move(training)) / kMedianDifference,
          mean_median(std::move(held_out)) / kMedianDifference};
}

std::optional<Divergence> ScoreAlarm::add_validation(double score, double standard_error) {
  if (training_steps_ == 0) return std::nullopt;
  points_.push_back({training_sum_ / static_cast<double>(training_steps_), score});
  training_sum_ = 0;
  training_steps_ = 0;
  if (points() < kLeastPoints) return std::nullopt;

  const Point now = block(points() - kBlock);
  Point best = block(0);
  for (int64_t first = 1; first + 2 * kBlock <= points(); ++first)
    if (const Point earlier = block(first); earlier.held_out > best.held_out) best = earlier;
  const Point near = deviation(1), far = deviation(kBlock);
  const double fall = best.held_out - now.held_out, rise = now.training - best.training;
  if (fall <= kFallErrors * kBlockError * std::max(near.held_out, far.held_out) ||
      fall <= kValidationErrors * standard_error ||
      rise <= kRiseErrors * kBlockError * std::max(near.training, far.training))
    return std::nullopt;
  return Divergence{best.held_out, now.held_out, best.training, now.training};
}

std::optional<Divergence> tell(ScoreAlarm& alarm, const Metrics& metrics) {
  // With dynamic sampling the score of all rollouts, not of the selected groups.
  auto training = metrics.find("critic/score_generated/mean");
  if (!training) training = metrics.find("critic/score/mean");
  if (training) alarm.add_training(*training);
  double sum = 0, sources = 0;
  for (const auto& [name, value] : metrics)
    if (name.starts_with("val-core/") && name.find("/reward/mean@") != name.npos) {
      sum += value;
      ++sources;
    }
  if (sources == 0) return std::nullopt;
  return alarm.add_validation(sum / sources,
                              metrics.find("val-aux/reward/standard_error").value_or(0));
}

void replay(ScoreAlarm& alarm, const std::string& metrics_file) {
  if (!std::filesystem::exists(metrics_file)) return;
  JsonLinesReader reader(metrics_file);
  nlohmann::ordered_json row;
  while (reader.try_next(row)) {
    Metrics metrics;
    for (const auto& [name, value] : row.items())
      if (value.is_number()) metrics.set(name, value.get<double>());
    tell(alarm, metrics);
  }
}

}  // namespace tlt::rl

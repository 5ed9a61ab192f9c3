// SPDX-License-Identifier: Apache-2.0
#include "simulate/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_count.h"
#include "base/json_lines.h"
#include "simulate/cost_model.h"

namespace tlt::simulate {
namespace {

constexpr size_t kFree = 4;
using Point = std::array<double, kFree>;  // logarithms
constexpr int kIterations = 3000;
constexpr double kConverged = 1e-12;  // difference of the errors of the best and the worst corner
constexpr size_t kMostMeasurements = 500;

Point to_point(const CostConstants& c) {
  return {std::log(c.compute_efficiency), std::log(c.layer_seconds), std::log(c.level_seconds),
          std::log(c.cycle_seconds)};
}

CostConstants to_constants(const Point& x, CostConstants c) {
  c.compute_efficiency = std::exp(x[0]);
  c.layer_seconds = std::exp(x[1]);
  c.level_seconds = std::exp(x[2]);
  c.cycle_seconds = std::exp(x[3]);
  return c;
}

// from + factor (to - from)
Point between(const Point& from, const Point& to, double factor) {
  Point point;
  for (size_t i = 0; i < kFree; ++i) point[i] = from[i] + factor * (to[i] - from[i]);
  return point;
}

struct Corner {
  Point at = {};
  double error = 0;
};

template <class Error>
Corner minimize(const Point& start, const Error& error) {
  constexpr double kFirstStep = 0.3;
  std::vector<Corner> corners = {{start, error(start)}};
  for (size_t i = 0; i < kFree; ++i) {
    Point point = start;
    point[i] += kFirstStep;
    corners.push_back({point, error(point)});
  }
  const auto make = [&](const Point& at) { return Corner{at, error(at)}; };
  for (int round = 0; round < kIterations; ++round) {
    std::ranges::sort(corners, {}, &Corner::error);
    Corner& worst = corners.back();
    if (worst.error - corners[0].error <= kConverged) break;
    Point middle = {};
    for (size_t k = 0; k < kFree; ++k)
      for (size_t i = 0; i < kFree; ++i) middle[i] += corners[k].at[i] / kFree;
    const Corner mirrored = make(between(worst.at, middle, 2));
    if (mirrored.error < corners[0].error) {
      const Corner further = make(between(worst.at, middle, 3));
      worst = further.error < mirrored.error ? further : mirrored;
    } else if (mirrored.error < corners[kFree - 1].error) {
      worst = mirrored;
    } else if (const Corner inside = make(between(worst.at, middle, 0.5));
               inside.error < worst.error) {
      worst = inside;
    } else {
      for (size_t k = 1; k <= kFree; ++k)
        corners[k] = make(between(corners[0].at, corners[k].at, 0.5));
    }
  }
  return std::ranges::min(corners, {}, &Corner::error);
}

Measurement parse(const nlohmann::json& row) {
  Measurement it;
  it.device = find_device(row.at("device").get<std::string>());
  it.model = find_model(row.at("model").get<std::string>());
  it.tensor_parallel = json_count(row, "tensor_parallel", int64_t{1});
  it.batch = row.value("batch", 1.0);
  it.context = row.value("context", kTableContext);
  if (row.contains("strategy"))
    it.strategy = drafter::parse_strategy(row.at("strategy").get<std::string>());
  it.accept_length = row.value("accept_length", 1.0);
  it.value = row.at(it.strategy ? "speedup" : "tokens_per_second").get<double>();
  TLT_CHECK_INPUT(it.value > 0 && it.accept_length >= 1 && it.batch >= 1 && it.context >= 0 &&
                      it.tensor_parallel >= 1,
                  "has an impossible number");
  return it;
}

}  // namespace

std::vector<Measurement> read_measurements(const std::string& path) {
  std::vector<Measurement> all;
  JsonLinesReader reader(path);
  for (nlohmann::json row; reader.try_next(row);) {
    TLT_CHECK_INPUT(all.size() < kMostMeasurements, reader.place(), ": more than ",
                    kMostMeasurements, " measurements; give fewer");
    try {
      all.push_back(parse(row));
    } catch (const InputError& error) {
      throw InputError(reader.place() + ": " + error.what());
    } catch (const nlohmann::json::exception&) {
      throw InputError(reader.place() +
                       ": not a measurement; docs/simulate.md has the fields of a line");
    }
  }
  TLT_CHECK_INPUT(!all.empty(), path, ": no measurements; give a line for each");
  return all;
}

double predict(const Measurement& it, const CostConstants& constants) {
  const CostModel costs({.device = it.device,
                         .model = it.model,
                         .tensor_parallel = it.tensor_parallel,
                         .constants = constants});
  const double plain = costs.forward(it.batch, it.batch, it.context);
  if (!it.strategy) return it.batch / plain;
  const double cycle =
      costs.forward(it.batch * static_cast<double>(it.strategy->verify), it.batch, it.context) +
      costs.drafting(*it.strategy, it.batch, /*has_model=*/true);
  return it.accept_length * plain / cycle;
}

double rms_error(const std::vector<Measurement>& measurements, const CostConstants& constants) {
  double sum = 0;
  for (const Measurement& it : measurements)
    sum += std::pow(predict(it, constants) / it.value - 1, 2);
  return std::sqrt(sum / static_cast<double>(measurements.size()));
}

CostConstants fit_constants(const std::vector<Measurement>& measurements, CostConstants start) {
  start.level_seconds = std::max(start.level_seconds, 1e-6);
  start.layer_seconds = std::max(start.layer_seconds, 1e-7);
  start.cycle_seconds = std::max(start.cycle_seconds, 1e-5);
  // Absolute times are few in such tables, and ratios do not tell them: they count as much as all
  // ratios together.
  double ratios = 0, times = 0;
  for (const Measurement& it : measurements) ++(it.strategy ? ratios : times);
  const auto error = [&](const Point& point) {
    const CostConstants c = to_constants(point, start);
    if (c.compute_efficiency > 1) return 1e9;
    double sum = 0;
    for (const Measurement& it : measurements)
      sum += std::pow(predict(it, c) / it.value - 1, 2) / (it.strategy ? ratios : times);
    return sum;
  };
  return to_constants(minimize(to_point(start), error).at, start);
}

}  // namespace tlt::simulate

// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/local_time.h"
#include "base/version.h"
#include "run/report/html_page.h"

namespace tlt::apps {
namespace {

constexpr const char* kCharts[] = {"step_speedup", "rollout_speedup",   "step_seconds",
                                   "idle_share",   "acceptance_length", "device_seconds_per_step"};

std::string value_of(const std::string& override) {
  return override.substr(override.find('=') + 1);
}

// The points that differ in the last sweep only, as a run of the page whose steps they are.
nlohmann::json run_of(const std::string& name, std::span<const SweepPoint> points) {
  nlohmann::json columns = nlohmann::json::object(), steps;
  for (size_t i = 0; i < points.size(); ++i) {
    steps.push_back(i);
    for (const auto& row : points[i].rows)
      for (const char* chart : kCharts)
        columns[fmt::format("{}/{}", chart, row.at("way").get<std::string>())].push_back(
            row.at(chart).get<double>());
  }
  return {{"name", name},
          {"folder", ""},
          {"metrics",
           {{"steps", std::move(steps)},
            {"columns", std::move(columns)},
            {"means", nlohmann::json::object()},
            {"sums", nlohmann::json::object()}}}};
}

}  // namespace

std::string sweep_page(const std::string& title, std::span<const SweepPoint> points) {
  TLT_CHECK(!points.empty() && !points[0].overrides.empty());
  const auto others = [](const SweepPoint& point) {
    return std::span(point.overrides).first(point.overrides.size() - 1);
  };
  nlohmann::json runs, values, ways;
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin;
    while (end < points.size() && std::ranges::equal(others(points[end]), others(points[begin])))
      ++end;
    const std::string name = fmt::format("{}", fmt::join(others(points[begin]), " "));
    runs.push_back(run_of(name.empty() ? title : name, points.subspan(begin, end - begin)));
    begin = end;
  }
  const size_t count = runs[0].at("metrics").at("steps").size();
  for (const SweepPoint& point : points.first(count))
    values.push_back(value_of(point.overrides.back()));
  for (const auto& row : points[0].rows) ways.push_back(row.at("way").get<std::string>());
  const std::string& last = points[0].overrides.back();
  return run::html_page(title, {{"program", fmt::format("tlt {} ({})", kVersion, kCommit)},
                                {"made", time_text(local_time_now())},
                                {"runs", std::move(runs)},
                                {"sweep",
                                 {{"command", title},
                                  {"option", last.substr(0, last.find('='))},
                                  {"values", std::move(values)},
                                  {"ways", std::move(ways)}}}});
}

}  // namespace tlt::apps

// SPDX-License-Identifier: Apache-2.0
#include "run/report/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "run/report/chart.h"
#include "run/report/svg.h"

namespace tlt::run {
namespace {

constexpr double kCurveWidth = 900, kCurveLeft = 70, kCurveRight = 30, kAbove = 62, kBelow = 26;

struct Panel {
  Chart chart;
  double height = 0;
};

Chart score_chart(const MetricHistory& history) {
  const Points& score = history.points("critic/score/mean");
  return {.title = "Score",
          .series = {{"training, each step", svg::kGrey, Mark::kDots, score},
                     {"training, mean of five steps", svg::kGrey, Mark::kLine,
                      running_mean(score, kMeanSteps)},
                     {"validation ± standard error", svg::kBlue, Mark::kMeasured,
                      held_out_score(history), history.points("val-aux/reward/standard_error")}}};
}

Chart length_chart(const MetricHistory& history) {
  return {.title = "Response length in tokens",
          .series = {
              {"median", svg::kBlue, Mark::kLine, history.points("response_length/p50")},
              {"99th percentile", svg::kOrange, Mark::kLine, history.points("response_length/p99")},
              {"limit", svg::kGrey, Mark::kDashed, history.points("response_length/limit")}}};
}

Chart truncated_chart(const MetricHistory& history) {
  return {.title = "Truncated at the limit",
          .series = {{"share of responses", svg::kRed, Mark::kLine,
                      history.points("response_length/clip_ratio")}},
          .is_share = true};
}

Chart acceptance_chart(const MetricHistory& history) {
  const Points& frozen = history.points("drafter/acceptance_length/frozen");
  const std::string since =
      frozen.empty() ? "" : fmt::format("frozen after step {:g}", frozen.front().first - 1);
  return {
      .title = "Acceptance length in tokens",
      .series = {
          {"in rollouts", svg::kGrey, Mark::kDots, history.points("rollout/spec_accept_length")},
          {since, svg::kOrange, Mark::kLine, frozen},
          {"adaptive draft model", svg::kGreen, Mark::kLine, offline_acceptance(history)}}};
}

}  // namespace

Points running_mean(const Points& points, size_t window) {
  Points means;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t first = i < window / 2 ? 0 : i - window / 2,
                 end = std::min(points.size(), i + window / 2 + 1);
    double sum = 0;
    for (size_t k = first; k < end; ++k) sum += points[k].second;
    means.emplace_back(points[i].first, sum / static_cast<double>(end - first));
  }
  return means;
}

Points held_out_score(const MetricHistory& history) {
  if (const Points& all = history.points("main/validation_score"); !all.empty()) return all;
  for (const std::string& name : history.names("val-core/"))
    if (name.find("/reward/mean@") != name.npos) return history.points(name);
  return {};
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

std::string draw_curve(const std::string& metrics_path, const std::string& title) {
  const MetricHistory history(metrics_path);
  const Points& score = history.points("critic/score/mean");
  if (score.size() < 2) return "";
  std::vector<Panel> panels = {{score_chart(history), 190},
                               {length_chart(history), 170},
                               {truncated_chart(history), 80},
                               {acceptance_chart(history), 170}};
  std::string body = svg::text({kCurveLeft, 30}, title, {.classes = "ink", .size = 17});
  double top = 30;
  for (Panel& panel : panels) {
    if (panel.chart.is_empty()) continue;
    panel.chart.last_step = score.back().first;
    body += draw_chart(panel.chart, {kCurveLeft, top + kAbove,
                                     kCurveWidth - kCurveLeft - kCurveRight, panel.height});
    top += kAbove + panel.height + kBelow - 14;
  }
  body += svg::text({kCurveWidth - kCurveRight, top + 32}, "step", {.anchor = "end"});
  return svg::document(kCurveWidth, top + 44, "Curves of " + title, body);
}

}  // namespace tlt::run

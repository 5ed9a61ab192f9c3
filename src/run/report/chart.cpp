// SPDX-License-Identifier: Apache-2.0
#include "run/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "run/report/svg.h"

namespace tlt::run {
namespace {

constexpr size_t kMostPoints = 600;  // per line; of more points, means are drawn
constexpr size_t kMostDots = 300;    // per series; more are not drawn
constexpr size_t kMostLabels = 8;    // per series; with more points only first, best and last
constexpr double kLabelHeight = 13, kLabelGap = 5;
constexpr double kKeyWidth = 24;  // legend mark, with the gap before its name

// The smallest of 1, 2, 2.5 or 5 times a power of ten that is >= `value`.
double round_up(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 2.5, 5.0})
    if (step * power >= value * (1 - 1e-9)) return step * power;
  return 10 * power;
}

bool overlap(const Box& a, const Box& b) {
  return a.left < b.left + b.width && b.left < a.left + a.width && a.top < b.top + b.height &&
         b.top < a.top + a.height;
}

// At most kMostPoints points: means of neighbouring ones.
Points thinned(const Points& points) {
  const size_t each = (points.size() + kMostPoints - 1) / kMostPoints;
  if (each <= 1) return points;
  Points out;
  for (size_t first = 0; first < points.size(); first += each) {
    const size_t end = std::min(points.size(), first + each);
    double step = 0, value = 0;
    for (size_t i = first; i < end; ++i) {
      step += points[i].first;
      value += points[i].second;
    }
    const auto count = static_cast<double>(end - first);
    out.emplace_back(step / count, value / count);
  }
  return out;
}

double error_at(const Series& series, double step) {
  for (const auto& [at, error] : series.errors)
    if (at == step) return error;
  return 0;
}

// Draws the series of a chart; their labels do not overlap.
class Drawing {
 public:
  Drawing(const Chart& chart, const Box& box) : chart_(chart), box_(box), y_axis_(fit()) {}

  std::string draw() {
    std::string out = grid() + heading();
    for (const Series& series : chart_.series)
      if (!series.points.empty()) out += marks(series);
    return out + labels_;
  }

 private:
  Axis fit() const {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (const Series& series : chart_.series)
      for (const auto& [step, value] : series.points) {
        const double error = error_at(series, step);
        low = std::min(low, value - error);
        high = std::max(high, value + error);
      }
    if (chart_.is_share) low = std::min(low, 0.0);
    const int ticks = box_.height < 120 ? 2 : 5;
    return fit_axis(low, chart_.is_share ? std::max(high, 0.01) : high, ticks);
  }

  double x(double step) const { return box_.left + box_.width * step / chart_.last_step; }
  double y(double value) const {
    return box_.top + box_.height * (y_axis_.high - value) / (y_axis_.high - y_axis_.low);
  }
  std::string value_label(double value) const {
    if (chart_.is_share) return fmt::format("{:.3g} %", 100 * value);
    return std::abs(value) >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
  }

  std::string grid() const {
    std::string out;
    for (const double tick : y_axis_.ticks()) {
      out += svg::line({box_.left, y(tick)}, {box_.left + box_.width, y(tick)}, "class='grid'");
      const std::string words =
          chart_.is_share ? fmt::format("{:g} %", 100 * tick) : y_axis_.label(tick);
      out += svg::text({box_.left - 8, y(tick) + 4}, words, {.anchor = "end"});
    }
    Axis steps{0, chart_.last_step, std::max(1.0, round_up(chart_.last_step / 8))};
    if (steps.step == 2.5) steps.step = 5;
    for (const double tick : steps.ticks())
      out += svg::text({x(tick), box_.top + box_.height + 18}, fmt::format("{:g}", tick),
                       {.anchor = "middle"});
    return out;
  }

  // Title on the left, legend on the right.
  std::string heading() const {
    const double line = box_.top - 14;
    std::string out =
        svg::text({box_.left, line}, chart_.title, {.classes = "ink", .is_bold = true});
    double right = box_.left + box_.width;
    for (auto series = chart_.series.rbegin(); series != chart_.series.rend(); ++series) {
      if (series->points.empty()) continue;
      const double left = right - svg::text_width(series->name) - kKeyWidth;
      out += key(*series, {left, line - 4});
      out += svg::text({left + kKeyWidth, line}, series->name, {});
      right = left - 16;
    }
    return out;
  }

  static std::string key(const Series& series, svg::Point at) {
    if (series.mark == Mark::kDots)
      return fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}' opacity='0.5'/>\n",
                         at.x + 10, at.y, series.colour);
    std::string out = svg::line(at, {at.x + 18, at.y}, stroke(series));
    if (series.mark == Mark::kMeasured) out += dot({at.x + 9, at.y}, series.colour);
    return out;
  }

  static std::string stroke(const Series& series) {
    return fmt::format("fill='none' stroke='{}' stroke-width='2'{}", series.colour,
                       series.mark == Mark::kDashed ? " stroke-dasharray='5 4'" : "");
  }
  static std::string dot(svg::Point at, const std::string& colour) {
    return fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3.5' fill='{}'/>\n", at.x, at.y, colour);
  }

  std::string marks(const Series& series) {
    std::string out;
    if (series.mark == Mark::kDots) {
      if (series.points.size() > kMostDots) return out;
      for (const auto& [step, value] : series.points)
        out += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='2.5' fill='{}' opacity='0.45'/>\n",
                           x(step), y(value), series.colour);
      return out;
    }
    std::string path;
    for (const auto& [step, value] : thinned(series.points))
      path += fmt::format("{:.1f},{:.1f} ", x(step), y(value));
    out +=
        fmt::format("<polyline points='{}' stroke-linejoin='round' {}/>\n", path, stroke(series));
    if (series.mark == Mark::kMeasured) out += measured(series);
    if (series.mark == Mark::kDashed) {
      const auto& [step, value] = series.points.back();
      label({x(step), y(value)}, value, series.colour);
    }
    return out;
  }

  std::string measured(const Series& series) {
    std::string out;
    const bool is_few = series.points.size() <= 4 * kMostLabels;
    const auto best = std::ranges::max_element(series.points, {}, &Points::value_type::second);
    for (auto point = series.points.begin(); point != series.points.end(); ++point) {
      const auto& [step, value] = *point;
      const double error = error_at(series, step);
      if (error > 0 && is_few)
        out += svg::line({x(step), y(value - error)}, {x(step), y(value + error)}, stroke(series));
      if (is_few) out += dot({x(step), y(value)}, series.colour);
      if (series.points.size() <= kMostLabels || point == series.points.begin() || point == best ||
          point + 1 == series.points.end())
        label({x(step), y(value + error)}, value, series.colour);
    }
    return out;
  }

  // Places the label above the point, or else below it; omits it if both are taken.
  void label(svg::Point at, double value, const std::string& colour) {
    const std::string words = value_label(value);
    const double width = svg::text_width(words);
    const double left = std::clamp(at.x - width / 2, box_.left + 2, box_.left + box_.width - width);
    for (const double top : {at.y - kLabelGap - kLabelHeight, at.y + 2 * kLabelGap}) {
      const Box area{left, top, width, kLabelHeight};
      if (top < box_.top - 4 || top + kLabelHeight > box_.top + box_.height) continue;
      if (std::ranges::any_of(taken_, [&](const Box& other) { return overlap(area, other); }))
        continue;
      taken_.push_back(area);
      labels_ += svg::text({left, top + kLabelHeight - 2}, words,
                           {.classes = "halo", .colour = colour, .size = 12});
      return;
    }
  }

  const Chart& chart_;
  const Box box_;
  const Axis y_axis_;
  std::vector<Box> taken_;
  std::string labels_;  // drawn last, above all else
};

}  // namespace

std::vector<double> Axis::ticks() const {
  std::vector<double> ticks;
  const double slack = 1e-9 * step;
  for (double tick = std::ceil((low - slack) / step); tick * step <= high + slack; ++tick)
    ticks.push_back(tick * step + 0.0);  // + 0.0 turns -0 into 0
  return ticks;
}

std::string Axis::label(double tick) const {
  int decimals = 0;
  for (double scaled = step; decimals < 9 && std::abs(scaled - std::round(scaled)) > 1e-6 * scaled;
       scaled *= 10)
    ++decimals;
  return fmt::format("{:.{}f}", tick, decimals);
}

Axis fit_axis(double low, double high, int ticks) {
  if (!std::isfinite(low) || !std::isfinite(high)) return {};
  if (high - low < 1e-12 * std::max(std::abs(low), std::abs(high)) || high == low) {
    const double margin = low == 0 ? 1 : std::abs(low) / 2;  // a single value is in the middle
    low -= low == 0 ? 0 : margin;
    high += margin;
  }
  if (low > 0 && low <= 0.4 * high) low = 0;
  if (high < 0 && high >= 0.4 * low) high = 0;
  const double margin = 0.05 * (high - low);
  return {low == 0 ? 0 : low - margin, high == 0 ? 0 : high + margin,
          round_up((high - low) / std::max(1, ticks))};
}

bool Chart::is_empty() const {
  return std::ranges::all_of(series, [](const Series& one) { return one.points.empty(); });
}

std::string draw_chart(const Chart& chart, const Box& box) { return Drawing(chart, box).draw(); }

}  // namespace tlt::run

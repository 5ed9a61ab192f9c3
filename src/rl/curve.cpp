// SPDX-License-Identifier: Apache-2.0
#include "rl/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_lines.h"

namespace tlt::rl {
namespace {

constexpr std::array<const char*, 4> kColours = {"#1f6feb", "#d1495b", "#8a8f98", "#2e9e6b"};

// A round number of at least `value`: 1, 2, 2.5 or 5 times a power of ten.
double round_up(double value) {
  if (value <= 0) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 2.5, 5.0})
    if (step * power >= value) return step * power;
  return 10 * power;
}

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

std::string text(double x, double y, const std::string& anchor, const std::string& words,
                 const std::string& style = "") {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}' {}>{}</text>\n", x, y, anchor,
                     style, escape(words));
}

}  // namespace

std::string draw_chart(const std::string& title, const std::vector<Series>& lines, double left,
                       double top, double width, double height) {
  double last = 1, most = 0;
  for (const Series& line : lines)
    for (const auto& [step, value] : line.points) {
      last = std::max(last, step);
      most = std::max(most, value);
    }
  most = round_up(most);
  const auto x = [&](double step) { return left + width * step / last; };
  const auto y = [&](double value) { return top + height * (1 - value / most); };
  std::string svg = text(left, top - 12, "start", title, "font-weight='bold'");
  for (int i = 0; i <= 4; ++i) {
    const double value = most * i / 4;
    svg += fmt::format("<line x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}' stroke='#e3e6ea'/>\n",
                       left, left + width, y(value), y(value));
    svg += text(left - 8, y(value) + 4, "end", fmt::format("{:g}", value), "fill='#6b7280'");
  }
  const double step = std::max(1.0, round_up(last / 6));
  for (double s = 0; s <= last; s += step)
    svg += text(x(s), top + height + 18, "middle", fmt::format("{:g}", s), "fill='#6b7280'");
  for (size_t i = 0; i < lines.size(); ++i) {
    const char* colour = kColours[i % kColours.size()];
    std::string path;
    for (const auto& [at, value] : lines[i].points)
      path += fmt::format("{:.1f},{:.1f} ", x(at), y(value));
    svg += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2'/>\n", path,
                       colour);
    if (lines[i].points.size() <= 12)
      for (const auto& [at, value] : lines[i].points) {
        svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3.5' fill='{}'/>\n", x(at), y(value),
                           colour);
        const char* anchor = at == 0 ? "start" : at == last ? "end" : "middle";
        svg += text(x(at), y(value) + 18, anchor, fmt::format("{:.3g}", value),
                    fmt::format("fill='{}'", colour));
      }
    svg += text(left + width, top - 12 + 16 * static_cast<double>(i), "end", lines[i].name,
                fmt::format("fill='{}'", colour));
  }
  return svg;
}

std::string draw_curve(const std::string& metrics_path, const std::string& title) {
  Series validation{"validation", {}}, score{"training", {}}, p50{"median", {}},
      p99{"99th percentile", {}};
  JsonLinesReader reader(metrics_path);
  nlohmann::json row;
  while (reader.try_next(row)) {
    const double step = row.value("step", 0.0);
    const auto add = [&](const std::string& name, Series& series) {
      if (row.contains(name) && row[name].is_number())
        series.points.emplace_back(step, row[name].get<double>());
    };
    for (const auto& [name, value] : row.items())
      if (name.rfind("val-core/", 0) == 0) add(name, validation);
    add("critic/score/mean", score);
    add("response_length/p50", p50);
    add("response_length/p99", p99);
  }
  if (score.points.size() < 2) return "";
  return "<svg xmlns='http://www.w3.org/2000/svg' width='900' height='560' viewBox='0 0 900 560' "
         "font-family='sans-serif' "
         "font-size='13'>\n<rect width='900' height='560' fill='white'/>\n" +
         text(450, 28, "middle", title, "font-size='17'") +
         draw_chart("Score by step", {validation, score}, 70, 70, 790, 200) +
         draw_chart("Response length in tokens", {p50, p99}, 70, 330, 790, 180) + "</svg>\n";
}

}  // namespace tlt::rl

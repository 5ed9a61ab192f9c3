// Curve: the picture of a run, drawn from its metrics: validation and training score above,
// response lengths below.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tlt::rl {

// One line of a chart: (step, value), in order of steps.
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

// Reads metrics.jsonl and gives an SVG of 900 x 560; empty while there are not two steps yet.
std::string draw_curve(const std::string& metrics_path, const std::string& title);

// One chart as SVG elements in the rectangle (left, top, width, height). The vertical axis begins
// at 0.
std::string draw_chart(const std::string& title, const std::vector<Series>& lines, double left,
                       double top, double width, double height);

}  // namespace tlt::rl

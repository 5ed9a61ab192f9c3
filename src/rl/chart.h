// Chart: lines over steps as SVG, with axes that fit the data.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "rl/metric_history.h"

namespace tlt::rl {

// A range of values and the round numbers in it that are marked.
struct Axis {
  double low = 0, high = 1;
  double step = 0.25;  // between ticks: 1, 2, 2.5 or 5 times a power of ten

  std::vector<double> ticks() const;
  // With as many decimals as the step has.
  std::string label(double tick) const;
};

// The axis of values from `low` to `high`: a little more than them; from 0 where that leaves at
// least 60 % of the height to the data. `ticks`: their number, roughly.
Axis fit_axis(double low, double high, int ticks = 5);

enum class Mark {
  kLine,
  kDots,     // faint, without a line
  kDashed,   // a bound, labelled with its value at the right end
  kMeasured  // a line with points, error bars and values
};

struct Series {
  std::string name;
  std::string colour;
  Mark mark = Mark::kLine;
  Points points;
  Points errors = {};  // (step, standard error) for kMeasured
};

struct Box {
  double left = 0, top = 0, width = 0, height = 0;
};

struct Chart {
  std::string title;
  std::vector<Series> series;  // those without points are not drawn and not in the legend
  double last_step = 1;        // right end of the horizontal axis, which begins at 0
  bool is_share = false;       // values are shares: the axis shows percent from 0

  bool is_empty() const;
};

// Elements in the box; title and legend above it, labels of the axes around it.
std::string draw_chart(const Chart& chart, const Box& box);

}  // namespace tlt::rl

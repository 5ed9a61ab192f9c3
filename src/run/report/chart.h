// Chart: draws metrics over steps as SVG, with axes fitted to the data.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "run/report/metric_history.h"

namespace tlt::run {

// A range of values with ticks at round numbers.
struct Axis {
  double low = 0, high = 1;
  double step = 0.25;  // between ticks: 1, 2, 2.5 or 5 times a power of ten

  std::vector<double> ticks() const;
  // The tick with as many decimals as `step` has.
  std::string label(double tick) const;
};

// An axis for values from `low` to `high`, with 5 % margin. It starts (or ends) at 0 if the data
// then still spans at least 60 % of it. `ticks`: their approximate number.
Axis fit_axis(double low, double high, int ticks = 5);

enum class Mark {
  kLine,
  kDots,     // faint dots without a line
  kDashed,   // a limit, labelled with its value at the right end
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
  std::vector<Series> series;  // series without points are left out, also of the legend
  double last_step = 1;        // right end of the horizontal axis, which starts at 0
  bool is_share = false;       // values are fractions: the axis shows percent and includes 0

  bool is_empty() const;
};

// SVG elements: the plot in `box`, title and legend above it, axis labels around it.
std::string draw_chart(const Chart& chart, const Box& box);

}  // namespace tlt::run

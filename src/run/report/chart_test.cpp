// SPDX-License-Identifier: Apache-2.0
#include "run/report/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tlt::run {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ChartTest, AxisCoversTheData) {
  struct Case {
    double low, high;
  };
  for (const auto& [low, high] : {Case{0.4, 0.7},
                                  {-5, -1},
                                  {-1, 1},
                                  {0, 1024},
                                  {-1e6, 3e7},
                                  {1e-5, 2e-5},
                                  {3, 3},
                                  {0, 0},
                                  {-2, -2}}) {
    const Axis axis = fit_axis(low, high);
    EXPECT_LE(axis.low, low);
    EXPECT_GE(axis.high, high);
    EXPECT_LT(axis.low, axis.high);
    const double range = std::max(high - low, std::max({std::abs(low), std::abs(high), 1.0}));
    EXPECT_LE(axis.high - axis.low, 1.8 * range) << low << " " << high;
    EXPECT_GE(axis.ticks().size(), 2u) << low << " " << high;
    EXPECT_LE(axis.ticks().size(), 8u) << low << " " << high;
  }
}

TEST(ChartTest, LimitOf1024DoesNotDoubleTheAxis) {
  const Axis axis = fit_axis(70, 1024);
  EXPECT_EQ(axis.low, 0);
  EXPECT_LT(axis.high, 1100);
  EXPECT_THAT(axis.ticks(), ElementsAre(0, 250, 500, 750, 1000));
}

TEST(ChartTest, ZeroIsIncludedIfDataKeeps60Percent) {
  EXPECT_EQ(fit_axis(0.2, 0.8).low, 0);
  EXPECT_GT(fit_axis(0.43, 0.76).low, 0.4);
  EXPECT_LT(fit_axis(-0.8, -0.6).high, -0.5);
  EXPECT_EQ(fit_axis(-0.8, -0.1).high, 0);
}

TEST(ChartTest, LabelsHaveTheDecimalsOfTheStep) {
  EXPECT_EQ((Axis{0, 1, 0.25}.label(0.5)), "0.50");
  EXPECT_EQ((Axis{0, 1, 0.1}.label(0.1 * 3)), "0.3");
  EXPECT_EQ((Axis{0, 2000, 500}.label(1000)), "1000");
  EXPECT_THAT((Axis{-0.1, 0.1, 0.1}.ticks()), ElementsAre(DoubleNear(-0.1, 1e-12), 0, 0.1));
  EXPECT_FALSE(std::signbit((Axis{-0.1, 0.1, 0.1}.ticks()[1])));
}

TEST(ChartTest, LegendOmitsEmptySeries) {
  const Chart chart{.title = "Score",
                    .series = {{"training", "#111111", Mark::kLine, {{1, 0.5}, {2, 0.6}}},
                               {"validation", "#222222", Mark::kMeasured, {}}},
                    .last_step = 2};
  const std::string svg = draw_chart(chart, {0, 0, 100, 100});
  EXPECT_THAT(svg, HasSubstr("training"));
  EXPECT_THAT(svg, Not(HasSubstr("validation")));
  EXPECT_FALSE(chart.is_empty());
  EXPECT_TRUE((Chart{.title = "", .series = {{"a", "", Mark::kLine, {}}}}.is_empty()));
}

TEST(ChartTest, LabelsDoNotOverlap) {
  Series series{"validation", "#222222", Mark::kMeasured, {}};
  for (int step = 0; step < 8; ++step) series.points.emplace_back(step, 0.5);
  const std::string svg =
      draw_chart({.title = "", .series = {series}, .last_step = 200}, {0, 0, 400, 100});
  // Eight values within 14 pixels: one above, one below.
  size_t labels = 0;
  for (size_t at = svg.find("halo"); at != std::string::npos; at = svg.find("halo", at + 1))
    ++labels;
  EXPECT_EQ(labels, 2u);
}

TEST(ChartTest, LongRunIsDrawnWithFewPoints) {
  Points points;
  for (int step = 1; step <= 100'000; ++step) points.emplace_back(step, std::sin(step));
  const Chart chart{
      .title = "",
      .series = {{"a", "#111111", Mark::kLine, points}, {"b", "#111111", Mark::kDots, points}},
      .last_step = 100'000};
  EXPECT_LT(draw_chart(chart, {0, 0, 800, 200}).size(), 20'000u);
}

}  // namespace
}  // namespace tlt::run

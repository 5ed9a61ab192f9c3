// SPDX-License-Identifier: Apache-2.0
#include "run/report/curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// The SVG for a metrics file with this content.
std::string curve_of(const std::string& metrics) {
  const TestFolder folder;
  write_file_atomic(folder / "metrics.jsonl", metrics);
  return draw_curve(folder / "metrics.jsonl", "a <run>");
}

TEST(CurveTest, DrawsOnlyMetricsThatExist) {
  const std::string svg = curve_of(
      "{\"step\": 0, \"val-core/x/reward/mean@1\": 0.25}\n"
      "{\"step\": 1, \"critic/score/mean\": 0.3, \"response_length/p50\": 70, "
      "\"response_length/p99\": null}\n"
      "{\"step\": 2, \"critic/score/mean\": 0.4, \"val-core/x/reward/mean@1\": 0.625}\n");
  EXPECT_THAT(svg, HasSubstr("0.625"));
  EXPECT_THAT(svg, HasSubstr("a &lt;run>"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, HasSubstr("validation"));
  EXPECT_THAT(svg, Not(HasSubstr("99th percentile"))) << "has no finite value";
  EXPECT_THAT(svg, Not(HasSubstr("Acceptance length")));
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

TEST(CurveTest, FollowsTheColourScheme) {
  const std::string svg = curve_of(
      "{\"step\": 1, \"critic/score/mean\": 0.3}\n{\"step\": 2, \"critic/score/mean\": 0.4}\n");
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(svg, HasSubstr("class='bg'"));
}

TEST(CurveTest, LegendNamesTheStepOfTheFrozenModel) {
  const std::string svg = curve_of(
      "{\"step\": 3, \"critic/score/mean\": 0.3, \"drafter/acceptance_length/before\": 1.5}\n"
      "{\"step\": 4, \"critic/score/mean\": 0.4, \"drafter/acceptance_length/before\": 1.8, "
      "\"drafter/acceptance_length/frozen\": 1.6}\n");
  EXPECT_THAT(svg, HasSubstr("frozen after step 3"));
}

TEST(CurveTest, OneStepGivesNoCurve) {
  EXPECT_EQ(curve_of("{\"step\": 1, \"critic/score/mean\": 0.3}\n"), "");
}

TEST(CurveTest, RunningMeanIsCentred) {
  EXPECT_THAT(
      running_mean({{1, 1}, {2, 2}, {3, 6}, {4, 3}, {5, 3}, {6, 9}}, 5),
      ElementsAre(Pair(1, 3), Pair(2, 3), Pair(3, 3), Pair(4, 4.6), Pair(5, 5.25), Pair(6, 5)));
}

TEST(CurveTest, AcceptanceLengthIsOfTheModelInUse) {
  const TestFolder folder;
  write_file_atomic(folder / "metrics.jsonl",
                    "{\"step\": 1, \"drafter/acceptance_length/before\": 1, "
                    "\"drafter/acceptance_length/after\": 2, \"drafter/published\": 1}\n"
                    "{\"step\": 2, \"drafter/acceptance_length/before\": 2.5, "
                    "\"drafter/acceptance_length/after\": 1.5, \"drafter/published\": 0}\n"
                    "{\"step\": 3, \"drafter/acceptance_length/before\": 2.25}\n");
  EXPECT_THAT(offline_acceptance(MetricHistory(folder / "metrics.jsonl")),
              ElementsAre(Pair(1, 2), Pair(2, 2.5), Pair(3, 2.25)));
}

}  // namespace
}  // namespace tlt::run

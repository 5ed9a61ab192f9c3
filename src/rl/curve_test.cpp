// SPDX-License-Identifier: Apache-2.0
#include "rl/curve.h"

#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace tlt::rl {
namespace {

TEST(CurveTest, DrawsWhatTheMetricsSay) {
  const tests::Scratch scratch;
  std::ofstream(scratch / "metrics.jsonl")
      << "{\"step\": 0, \"val-core/x/reward/mean@1\": 0.25}\n"
      << "{\"step\": 1, \"critic/score/mean\": 0.3, \"response_length/p50\": 70, "
         "\"response_length/p99\": null}\n"
      << "{\"step\": 2, \"critic/score/mean\": 0.4, \"val-core/x/reward/mean@1\": 0.625}\n";
  const std::string svg = draw_curve((scratch / "metrics.jsonl").string(), "a <run>");
  EXPECT_NE(svg.find("0.625"), std::string::npos);
  EXPECT_NE(svg.find("a &lt;run>"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

TEST(CurveTest, OneStepIsNoCurve) {
  const tests::Scratch scratch;
  std::ofstream(scratch / "metrics.jsonl") << "{\"step\": 1, \"critic/score/mean\": 0.3}\n";
  EXPECT_EQ(draw_curve((scratch / "metrics.jsonl").string(), "run"), "");
}

}  // namespace
}  // namespace tlt::rl

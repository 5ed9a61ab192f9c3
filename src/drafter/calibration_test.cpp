// SPDX-License-Identifier: Apache-2.0
#include "drafter/calibration.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/random.h"

namespace tlt::drafter {
namespace {

TEST(CalibrationTest, StartsWithTheDraftersProbabilities) {
  const Calibration calibration;
  for (double p = 0; p <= 1; p += 0.01) EXPECT_NEAR(calibration.corrected(p), p, 1e-9);
}

TEST(CalibrationTest, LearnsTheObservedAcceptance) {
  // Chains with probabilities p, p / 2, p / 4, accepted half as often.
  Calibration calibration;
  RandomStream random(2, {});
  for (int step = 0; step < 500; ++step) {
    std::vector<std::vector<DraftNode>> nodes;
    std::vector<VerifiedTree> trees;
    for (int i = 0; i < 8; ++i) {
      const auto p = static_cast<float>(random.uniform());
      nodes.push_back({{1, -1, 1, p}, {1, 0, 2, p / 2}, {1, 1, 3, p / 4}});
      const double u = 2 * random.uniform();
      int32_t accepted = -1;
      while (accepted < 2 &&
             u < static_cast<double>(nodes.back()[static_cast<size_t>(accepted + 1)].probability))
        ++accepted;
      trees.push_back({{}, accepted});
    }
    for (size_t i = 0; i < trees.size(); ++i) trees[i].nodes = nodes[i];
    calibration.record(trees);
  }
  for (const double p : {0.05, 0.1, 0.2, 0.4, 0.6, 0.9})
    EXPECT_NEAR(calibration.corrected(p), p / 2, 0.1 * p + 0.01) << p;
  for (double p = 0; p < 1; p += 0.01)
    EXPECT_LE(calibration.corrected(p), calibration.corrected(p + 0.01));
}

TEST(CalibrationTest, CorrectedProbabilityIsMonotone) {
  Calibration calibration;
  const std::vector<DraftNode> sure = {{1, -1, 1, 0.9f}}, doubtful = {{1, -1, 1, 0.2f}};
  const std::vector<VerifiedTree> trees = {{sure, -1}, {doubtful, 0}};
  for (int i = 0; i < 300; ++i) calibration.record(trees);
  for (double p = 0; p < 1; p += 0.01)
    EXPECT_LE(calibration.corrected(p), calibration.corrected(p + 0.01)) << p;
}

TEST(CalibrationTest, RestoredCalibrationCorrectsTheSame) {
  Calibration calibration, resumed;
  const std::vector<DraftNode> nodes = {{1, -1, 1, 0.7f}, {1, 0, 2, 0.2f}};
  const std::vector<VerifiedTree> trees = {{nodes, -1}, {nodes, 1}};
  calibration.record(trees);
  resumed.restore(nlohmann::json::parse(calibration.save().dump()));
  for (double p = 0; p <= 1; p += 0.1) EXPECT_EQ(resumed.corrected(p), calibration.corrected(p));
  EXPECT_NE(calibration.corrected(0.2), Calibration().corrected(0.2));
}

}  // namespace
}  // namespace tlt::drafter

// SPDX-License-Identifier: Apache-2.0
#include "speculation/cost_table.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace tlt::speculation {
namespace {

TEST(CurveTest, IsLinearBetweenAndBeyondItsPoints) {
  Curve curve;
  curve.points.push_back({2, 10});
  EXPECT_EQ(curve.at(0), 10);
  EXPECT_EQ(curve.at(9), 10);
  curve.points.push_back({4, 14});
  EXPECT_EQ(curve.at(1), 10);
  EXPECT_EQ(curve.at(2), 10);
  EXPECT_EQ(curve.at(3), 12);
  EXPECT_EQ(curve.at(4), 14);
  EXPECT_EQ(curve.at(6), 18);
}

TEST(CurveTest, ReaderFindsEveryPlaceFromEveryOther) {
  const Curve curve({{1, 1}, {2, 1.05}, {4, 1.6}, {8, 2.7}, {16, 5}});
  for (double last = 0; last <= 20; last += 0.5)
    for (double next = 0; next <= 20; next += 0.5) {
      CurveReader reader(curve);
      EXPECT_EQ(reader.at(last), curve.at(last));
      EXPECT_EQ(reader.at(next), curve.at(next)) << next << " after " << last;
    }
}

TEST(CostTableTest, InterpolatesInRowsAndBatch) {
  const CostTable table({{1, 1, 1}, {1, 11, 2}, {3, 3, 3}, {3, 13, 5}}, {});
  EXPECT_DOUBLE_EQ(table.target_seconds(6, 1), 1.5);
  EXPECT_DOUBLE_EQ(table.target_seconds(8, 3), 4);
  EXPECT_DOUBLE_EQ(table.target_seconds(8, 2), (1.7 + 4) / 2);
  EXPECT_DOUBLE_EQ(table.target_seconds(8, 100), 4);
  // Three sequences have at least three rows. A non-speculative step of two sequences lies between
  // those of one and three.
  EXPECT_DOUBLE_EQ(table.target_seconds(2, 2), 2);
  EXPECT_DOUBLE_EQ(table.target_seconds(3, 2), (1.2 + 3) / 2);
  EXPECT_DOUBLE_EQ(table.target_seconds(2.5, 2), 2.05);
}

// The arithmetic of 512 rows takes 16 seconds, reading the weights as long as 32 of them.
TEST(CostTableTest, RidgeIsWhereArithmeticTakesAsLongAsReading) {
  const CostTable table({{1, 1, 1}, {1, 16, 1.1}, {8, 8, 1}, {8, 512, 16}, {1, 1, 9, 2000}}, {});
  EXPECT_DOUBLE_EQ(table.ridge(), 32);
}

TEST(CostTableTest, LongerTextsCostMoreInAStraightLine) {
  const CostTable table({{1, 1, 1, 100}, {1, 11, 2, 100}, {1, 1, 3, 500}, {1, 11, 3.5, 500}}, {});
  EXPECT_DOUBLE_EQ(table.target_seconds(1, 1, 100), 1);
  EXPECT_DOUBLE_EQ(table.target_seconds(1, 1, 300), 2);
  EXPECT_DOUBLE_EQ(table.target_seconds(6, 1, 200), 1.5 + (3.25 - 1.5) / 4);
  EXPECT_DOUBLE_EQ(table.target_seconds(1, 1, 900), 5) << "extrapolated after the longest";
  EXPECT_DOUBLE_EQ(table.target_seconds(1, 1, 0), 1) << "as the shortest";
  // Passes after the longer context are fewer: what they add to the others is interpolated.
  const CostTable steps(
      {{1, 1, 1, 100}, {1, 6, 1, 100}, {1, 7, 2, 100}, {1, 1, 3, 500}, {1, 7, 4, 500}}, {});
  EXPECT_DOUBLE_EQ(steps.target_seconds(6, 1, 500), 3);
  EXPECT_DOUBLE_EQ(steps.target_seconds(6, 1, 300), 2);
  const CostTable one({{1, 1, 1, 100}}, {}), noisy({{1, 1, 2, 100}, {1, 1, 1, 500}}, {});
  EXPECT_DOUBLE_EQ(one.target_seconds(1, 1, 900), 1);
  EXPECT_DOUBLE_EQ(noisy.target_seconds(1, 1, 900), 2) << "never less";
}

// A batch that loses a sequence must not seem to become much cheaper.
TEST(CostTableTest, PlainStepsCostMoreFromSequenceToSequence) {
  const CostTable table({{8, 8, 230}, {8, 16, 400}, {16, 16, 490}, {16, 32, 800}}, {});
  for (int batch = 9; batch <= 16; ++batch)
    EXPECT_NEAR(table.target_seconds(batch, batch) - table.target_seconds(batch - 1, batch - 1),
                260.0 / 8, 1e-9);
  for (int batch = 8; batch < 16; ++batch)
    for (int rows = batch; rows < 32; ++rows)
      EXPECT_LT(table.target_seconds(rows, batch), table.target_seconds(rows + 1, batch));
}

TEST(CostTableTest, UnmeasuredTreesCostTheNearestsLevels) {
  const CostTable table(
      {{1, 1, 1}},
      {{"eagle", {4, 2, 8}, 1, 0.4}, {"eagle", {4, 2, 8}, 9, 1.2}, {"eagle", {8, 4, 8}, 1, 2}});
  EXPECT_DOUBLE_EQ(table.draft_curve({"eagle", {4, 2, 8}}).at(5), 0.8);
  EXPECT_DOUBLE_EQ(table.draft_curve({"eagle", {2, 2, 4}}).at(1), 0.2);
  EXPECT_DOUBLE_EQ(table.draft_curve({"eagle", {12, 4, 8}}).at(1), 3);
  EXPECT_DOUBLE_EQ(table.draft_curve({"eagle", {6, 1, 7}}).at(1), 0.6);
  EXPECT_DOUBLE_EQ(table.draft_curve({"eagle", {4, 9, 20}}).at(1), 1);
  EXPECT_TRUE(table.draft_curve({"suffix", {4, 2, 8}}).points.empty());
  EXPECT_TRUE(table.draft_curve(Arm{}).points.empty());
}

TEST(CostTableTest, MeasurementsThatMakeNoSenseAreRefused) {
  EXPECT_THROW(CostTable({}, {}), InputError);
  EXPECT_THROW(CostTable({{1, 1, 0}}, {}), InputError);
  EXPECT_THROW(CostTable({{1, 1, NAN}}, {}), InputError);
  EXPECT_THROW(CostTable({{1, 1, 1}}, {{"eagle", {4, 2, 8}, 1, -1}}), InputError);
}

}  // namespace
}  // namespace tlt::speculation

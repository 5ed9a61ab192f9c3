// SPDX-License-Identifier: Apache-2.0
#include "speculation/cost_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/random.h"

namespace tlt::speculation {
namespace {

const Arm kTree{"eagle", {4, 2, 8}};
const Arm kOther{"eagle", {8, 4, 16}};
constexpr size_t kNoGuesses = 0, kTreeArm = 1, kOtherArm = 2;

// A row costs a tenth of a pass.
CostTable make_table() {
  return CostTable({{1, 1, 1.1}, {1, 1001, 101.1}}, {{"eagle", {4, 2, 8}, 1, 0.5}});
}

double table_seconds(double rows, double drafting = 0) { return 1 + 0.1 * rows + drafting; }

// Of steps whose trees are full.
double rows_of(size_t arm, int64_t batch) {
  const int64_t verify[] = {1, kTree.strategy.verify, kOther.strategy.verify};
  return static_cast<double>(batch * verify[arm]);
}

StepCosts::Prediction predict(StepCosts& costs, size_t arm, int64_t batch) {
  const std::vector<double> rows = {rows_of(0, batch), rows_of(1, batch), rows_of(2, batch)};
  return costs.predict(batch, rows)[arm];
}

double seconds_of(StepCosts& costs, size_t arm, int64_t batch) {
  return std::exp(predict(costs, arm, batch).log_seconds);
}

void record(StepCosts& costs, size_t arm, int64_t batch, double seconds) {
  costs.record(arm, batch, rows_of(arm, batch), seconds);
}

TEST(CurveTest, GoesStraightBetweenPointsAndOnBehindTheLast) {
  Curve curve;
  EXPECT_TRUE(curve.empty());
  curve.add(2, 10);
  EXPECT_EQ(curve.at(0), 10);
  EXPECT_EQ(curve.at(9), 10);
  curve.add(4, 14);
  EXPECT_EQ(curve.at(1), 10);
  EXPECT_EQ(curve.at(2), 10);
  EXPECT_EQ(curve.at(3), 12);
  EXPECT_EQ(curve.at(4), 14);
  EXPECT_EQ(curve.at(6), 18);
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

TEST(CostTableTest, LongerTextsCostMoreInAStraightLine) {
  const CostTable table({{1, 1, 1, 100}, {1, 11, 2, 100}, {1, 1, 3, 500}, {1, 11, 3.5, 500}}, {});
  EXPECT_DOUBLE_EQ(table.target_seconds(1, 1, 100), 1);
  EXPECT_DOUBLE_EQ(table.target_seconds(1, 1, 300), 2);
  EXPECT_DOUBLE_EQ(table.target_seconds(6, 1, 200), 1.5 + (3.25 - 1.5) / 4);
  EXPECT_DOUBLE_EQ(table.target_seconds(1, 1, 900), 5) << "extrapolated after the longest";
  EXPECT_DOUBLE_EQ(table.target_seconds(1, 1, 0), 1) << "as the shortest";
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

TEST(CostTableTest, ProposalThatWasNotMeasuredLiesBetweenThoseOfOtherWidthsLevelByLevel) {
  const CostTable table(
      {{1, 1, 1}},
      {{"eagle", {4, 2, 8}, 1, 0.4}, {"eagle", {4, 2, 8}, 9, 1.2}, {"eagle", {8, 4, 8}, 1, 2}});
  EXPECT_DOUBLE_EQ(table.draft_curve({"eagle", {4, 2, 8}}).at(5), 0.8);
  EXPECT_DOUBLE_EQ(table.draft_curve({"eagle", {2, 2, 4}}).at(1), 0.2);
  EXPECT_DOUBLE_EQ(table.draft_curve({"eagle", {12, 4, 8}}).at(1), 3);
  EXPECT_DOUBLE_EQ(table.draft_curve({"eagle", {8, 3, 8}}).at(1), 8 * (0.1 + 0.25) / 2);
  EXPECT_DOUBLE_EQ(table.draft_curve({"eagle", {6, 1, 7}}).at(1), 0.6);
  EXPECT_DOUBLE_EQ(table.draft_curve({"eagle", {4, 9, 20}}).at(1), 1);
  EXPECT_TRUE(table.draft_curve({"suffix", {4, 2, 8}}).empty());
  EXPECT_TRUE(table.draft_curve(Arm{}).empty());
}

TEST(CostTableTest, MeasurementsThatMakeNoSenseAreRefused) {
  EXPECT_THROW(CostTable({}, {}), InputError);
  EXPECT_THROW(CostTable({{1, 1, 0}}, {}), InputError);
  EXPECT_THROW(CostTable({{1, 1, NAN}}, {}), InputError);
  EXPECT_THROW(CostTable({{1, 1, 1}}, {{"eagle", {4, 2, 8}, 1, -1}}), InputError);
}

TEST(StepCostsTest, BeginsWithTheTable) {
  StepCosts costs({Arm{}, kTree}, make_table());
  EXPECT_NEAR(seconds_of(costs, kNoGuesses, 4), table_seconds(4), 1e-9);
  EXPECT_NEAR(seconds_of(costs, kTreeArm, 4), table_seconds(32, 0.5), 1e-9);
}

// What an arm is off by is the same for short texts and long ones.
TEST(StepCostsTest, WhatWasSeenBehindShortTextsHoldsBehindLongOnes) {
  const CostTable table({{1, 1, 1, 100}, {1, 1, 5, 900}}, {});
  StepCosts costs({Arm{}}, table);
  const std::vector<double> rows = {1};
  for (int i = 0; i < 50; ++i) costs.record(kNoGuesses, {1, 100}, 1, 1.3);
  EXPECT_NEAR(std::exp(costs.predict({1, 900}, rows)[0].log_seconds), 1.3 * 5, 0.01);
  EXPECT_NEAR(std::exp(costs.predict({1, 500}, rows)[0].log_seconds), 1.3 * 3, 0.01);
}

TEST(StepCostsTest, WhatIsOffForOneArmIsTakenForTheOthersUntilTheyAreKnown) {
  StepCosts costs({Arm{}, kTree, kOther}, make_table());
  for (int i = 0; i < 50; ++i) record(costs, kTreeArm, 4, 1.4 * table_seconds(32, 0.5));
  EXPECT_NEAR(seconds_of(costs, kTreeArm, 4), 1.4 * table_seconds(32, 0.5), 0.01);
  EXPECT_NEAR(seconds_of(costs, kNoGuesses, 4) / table_seconds(4), 1.4, 0.01);
  for (int i = 0; i < 50; ++i) record(costs, kNoGuesses, 4, 1.2 * table_seconds(4));
  EXPECT_NEAR(seconds_of(costs, kNoGuesses, 4) / table_seconds(4), 1.2, 0.01);
  EXPECT_NEAR(seconds_of(costs, kTreeArm, 4) / table_seconds(32, 0.5), 1.4, 0.02);
}

TEST(StepCostsTest, NeighbouringBatchSizesShare) {
  StepCosts costs({Arm{}, kTree}, make_table());
  for (int i = 0; i < 100; ++i) {
    record(costs, kNoGuesses, 8, table_seconds(8));
    record(costs, kTreeArm, 8, 1.5 * table_seconds(64, 0.5));
  }
  EXPECT_NEAR(seconds_of(costs, kTreeArm, 6) / table_seconds(48, 0.5), 1.5, 0.05);
  const double near = predict(costs, kTreeArm, 8).deviation;
  EXPECT_LT(near, predict(costs, kTreeArm, 64).deviation);
  // Nearer ones count more.
  for (int i = 0; i < 100; ++i) {
    record(costs, kNoGuesses, 64, table_seconds(64));
    record(costs, kTreeArm, 64, table_seconds(512, 0.5));
  }
  const auto beside_off = [&](int64_t batch) {
    const double off = seconds_of(costs, kNoGuesses, batch) / table_seconds(batch);
    return seconds_of(costs, kTreeArm, batch) / table_seconds(8.0 * batch, 0.5) / off;
  };
  EXPECT_GT(beside_off(11), 1.35);
  EXPECT_LT(beside_off(45), 1.15);
}

TEST(StepCostsTest, NoiseAndOutliersHardlyMatter) {
  StepCosts costs({Arm{}, kTree}, make_table());
  RandomStream random(1, {});
  for (int i = 0; i < 400; ++i) {
    const double outlier = random.uniform() < 0.02 ? 10 : 1;
    record(costs, kTreeArm, 4,
           1.2 * table_seconds(32, 0.5) * outlier * std::exp(0.1 * random.normal()));
  }
  EXPECT_NEAR(seconds_of(costs, kTreeArm, 4) / table_seconds(32, 0.5), 1.2, 0.03);
}

TEST(StepCostsTest, FirstStepMayBeAnOutlier) {
  StepCosts costs({Arm{}, kTree}, make_table());
  record(costs, kTreeArm, 4, 100 * table_seconds(32, 0.5));
  for (int i = 0; i < 10; ++i) record(costs, kTreeArm, 4, table_seconds(32, 0.5));
  EXPECT_NEAR(seconds_of(costs, kNoGuesses, 4) / table_seconds(4), 1, 0.05);
}

TEST(StepCostsTest, MachineThatBecomesSlowerIsNoticed) {
  StepCosts costs({Arm{}, kTree}, make_table());
  for (int i = 0; i < 300; ++i) record(costs, kTreeArm, 4, table_seconds(32, 0.5));
  for (int i = 0; i < 300; ++i) record(costs, kTreeArm, 4, 3 * table_seconds(32, 0.5));
  EXPECT_NEAR(seconds_of(costs, kTreeArm, 4) / table_seconds(32, 0.5), 3, 0.7);
}

// At the end of a rollout: few sequences are left, and a strategy is played there for the first
// time.
TEST(StepCostsTest, AnArmThatIsDearWhereItIsNewMakesNoOtherLookSlow) {
  for (const double noise : {0.0, 0.1}) {
    StepCosts costs({Arm{}, kTree}, make_table());
    RandomStream random(1, {});
    const auto play = [&](size_t arm, int64_t batch, double seconds) {
      record(costs, arm, batch, seconds * std::exp(noise * random.normal()));
    };
    for (int i = 0; i < 300; ++i) play(kTreeArm, 32, table_seconds(256, 0.5));
    for (const int64_t batch : {32, 16, 8, 4, 2})
      for (int i = 0; i < 100; ++i)
        play(kNoGuesses, batch, table_seconds(static_cast<double>(batch)));
    for (int i = 0; i < 20; ++i) play(kTreeArm, 1, 2.5 * table_seconds(8, 0.5));
    EXPECT_NEAR(seconds_of(costs, kTreeArm, 1) / table_seconds(8, 0.5), 2.5, 0.4) << noise;
    EXPECT_NEAR(seconds_of(costs, kNoGuesses, 1) / table_seconds(1), 1, 0.2) << noise;
    EXPECT_NEAR(seconds_of(costs, kTreeArm, 32) / table_seconds(256, 0.5), 1, 0.2) << noise;
  }
}

// Whatever is played meanwhile.
TEST(StepCostsTest, AMachineThatIsBusyForAWhileMakesNoArmLookSlow) {
  StepCosts costs({Arm{}, kTree}, make_table());
  for (int i = 0; i < 50; ++i) {
    record(costs, kNoGuesses, 4, table_seconds(4));
    record(costs, kTreeArm, 4, 1.2 * table_seconds(32, 0.5));
  }
  for (int i = 0; i < 50; ++i) record(costs, kTreeArm, 4, 2.5 * 1.2 * table_seconds(32, 0.5));
  EXPECT_NEAR(seconds_of(costs, kNoGuesses, 4) / table_seconds(4), 2.5, 0.1);
  EXPECT_NEAR(seconds_of(costs, kTreeArm, 4) / table_seconds(32, 0.5), 2.5 * 1.2, 0.1);
  for (int i = 0; i < 3; ++i) record(costs, kNoGuesses, 4, table_seconds(4));
  EXPECT_NEAR(seconds_of(costs, kTreeArm, 4) / table_seconds(32, 0.5), 1.2, 0.1);
}

// Trees are cut at large batch sizes: what a step costs must not be taken for what its arm costs.
TEST(StepCostsTest, ATreeThatWasCutSaysNothingOfRows) {
  StepCosts costs({Arm{}, kTree, kOther}, make_table());
  for (int i = 0; i < 50; ++i) costs.record(kTreeArm, 16, 20, 1.1 * table_seconds(20, 0.5));
  EXPECT_NEAR(seconds_of(costs, kTreeArm, 16) / table_seconds(128, 0.5), 1.1, 0.01);
  EXPECT_NEAR(seconds_of(costs, kNoGuesses, 16) / table_seconds(16), 1.1, 0.03);
  EXPECT_NEAR(seconds_of(costs, kOtherArm, 16) / table_seconds(256, 1), 1.1, 0.03);
}

TEST(StepCostsTest, RestoredCostsAreTheSame) {
  StepCosts costs({Arm{}, kTree}, make_table());
  for (int i = 1; i < 40; ++i) record(costs, static_cast<size_t>(i % 2), i, 1 + 0.1 * i);
  StepCosts resumed({Arm{}, kTree}, make_table());
  resumed.restore(nlohmann::json::parse(costs.save().dump()));
  for (const int64_t batch : {1, 7, 64})
    for (const size_t arm : {kNoGuesses, kTreeArm}) {
      EXPECT_EQ(predict(resumed, arm, batch).log_seconds, predict(costs, arm, batch).log_seconds);
      EXPECT_EQ(predict(resumed, arm, batch).deviation, predict(costs, arm, batch).deviation);
    }
}

}  // namespace
}  // namespace tlt::speculation

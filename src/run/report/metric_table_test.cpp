// SPDX-License-Identifier: Apache-2.0
#include "run/report/metric_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::run {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Le;
using ::testing::SizeIs;
using Json = nlohmann::json;

MetricHistory history_of_rows(const std::vector<Json>& rows) {
  const TestFolder folder;
  std::string text;
  for (const Json& row : rows) text += row.dump() + "\n";
  write_file_atomic(folder / "metrics.jsonl", text);
  return MetricHistory(folder / "metrics.jsonl");
}

TEST(MetricTableTest, ColumnsHaveTheNumbersOfTheFile) {
  const Json table = metric_table(
      history_of_rows({{{"step", 0}, {"main/validation_score", 0.1}, {"timing_s/testing", 2}},
                       {{"step", 1}, {"a", 1.0 / 3}, {"rollout/tokens", 800}, {"timing_s/step", 5}},
                       {{"step", 2}, {"a", nullptr}, {"rollout/tokens", 50}, {"timing_s/step", 6}},
                       {{"step", 4}, {"a", 1e-17}, {"timing_s/save_checkpoint", 0.5}}}),
      1000);
  EXPECT_EQ(table.at("steps"), Json({0, 1, 2, 4}));
  EXPECT_EQ(table.at("all_steps"), 4);
  EXPECT_EQ(table.at("tokens"), Json({0, 800, 850, 850}));
  EXPECT_EQ(table.at("seconds"), Json({2, 7, 13, 13.5}));
  EXPECT_EQ(table.at("sums").at("timing_s/step"), Json({11, 2}));
  EXPECT_EQ(table.at("columns").at("main/validation_score"),
            Json({{"at", {0}}, {"values", {0.1}}}));
  EXPECT_EQ(table.at("columns").at("a"), Json({{"at", {1, 3}}, {"values", {1.0 / 3, 1e-17}}}));
  EXPECT_EQ(
      metric_table(history_of_rows(
                       {{{"step", 1}, {"a", 1}}, {{"step", 2}, {"b", 2}}, {{"step", 3}, {"a", 3}}}),
                   1000)
          .at("columns")
          .at("a"),
      Json({1, nullptr, 3}))
      << "most steps have it";
}

TEST(MetricTableTest, TrainedTokensCountWithoutRollouts) {
  EXPECT_EQ(metric_table(history_of_rows({{{"step", 1}, {"train/tokens", 10}},
                                          {{"step", 2}, {"train/tokens", 20}}}),
                         1000)
                .at("tokens"),
            Json({10, 30}));
}

TEST(MetricTableTest, ALongRunKeepsPeaksAndValidationsWithinTheLimit) {
  std::vector<Json> rows;
  for (int step = 1; step <= 5000; ++step) {
    rows.push_back({{"step", step},
                    {"critic/score/mean", step % 7},
                    {"actor/grad_norm", step == 2345 ? 100.0 : 1.0},
                    {"timing_s/step", step == 777 ? 60.0 : 1.0}});
    if (step == 4321) rows.back()["main/validation_score"] = 0.5;
  }
  const MetricHistory history = history_of_rows(rows);
  const std::vector<double> steps = choose_steps(history, 3000);
  EXPECT_THAT(steps, SizeIs(Le(1000u)));
  EXPECT_GT(steps.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
  EXPECT_THAT(steps,
              AllOf(Contains(1), Contains(5000), Contains(2345), Contains(777), Contains(4321)));
  const Json table = metric_table(history, 3000);
  EXPECT_EQ(table.at("all_steps"), 5000);
  // Sums are over all steps, shown or not.
  EXPECT_EQ(table.at("seconds").back(), 4999 + 60);
}

TEST(MetricTableTest, MeansAndTheBestValidationAreThoseOfAllSteps) {
  std::vector<Json> rows;
  for (int step = 1; step <= 5000; ++step) {
    rows.push_back({{"step", step}, {"critic/score/mean", step % 5}, {"other", 1}});
    rows.back()["main/validation_score"] = step == 1234 ? 0.9 : 0.5;
  }
  const MetricHistory history = history_of_rows(rows);
  const std::vector<double> steps = choose_steps(history, 3000);
  ASSERT_THAT(steps, SizeIs(Le(1000u)));
  for (const int step : {1, 2, 3, 4, 5, 1234, 4996, 4997, 4998, 4999, 5000})
    EXPECT_THAT(steps, Contains(step));
  const Json means = metric_table(history, 3000).at("means").at("critic/score/mean");
  ASSERT_EQ(means.size(), steps.size());
  EXPECT_EQ(means.at(0), 2) << "of steps 1 to 3";
  for (size_t i = 2; i + 2 < steps.size(); ++i)
    EXPECT_EQ(means.at(i), 2) << "of five steps next to each other, not of five that are kept";
  EXPECT_EQ(means.back(), 7.0 / 3) << "of steps 4998 to 5000";
}

TEST(MetricTableTest, TheLowestHeldOutLossIsKept) {
  std::vector<Json> rows;
  for (int step = 1; step <= 5000; ++step)
    rows.push_back(
        {{"step", step}, {"main/loss", 1}, {"main/validation_loss", step == 1234 ? 0.1 : 0.5}});
  EXPECT_THAT(choose_steps(history_of_rows(rows), 3000), Contains(1234));
}

TEST(MetricTableTest, AHistoryWithoutRowsIsEmpty) {
  EXPECT_TRUE(metric_table(history_of_rows({}), 1000).at("steps").empty());
}

}  // namespace
}  // namespace tlt::run

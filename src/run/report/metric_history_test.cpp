// SPDX-License-Identifier: Apache-2.0
#include "run/report/metric_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

MetricHistory history_of(const std::string& rows) {
  const TestFolder folder;
  write_file_atomic(folder / "metrics.jsonl", rows);
  return MetricHistory(folder / "metrics.jsonl");
}

TEST(MetricHistoryTest, KeepsTheValuesOfEachName) {
  const MetricHistory history = history_of(
      "{\"step\": 0, \"a/x\": 1}\n{\"step\": 2, \"a/x\": 2.5, \"a/y\": null, \"b\": \"text\"}\n");
  EXPECT_THAT(history.points("a/x"), ElementsAre(Pair(0, 1), Pair(2, 2.5)));
  EXPECT_THAT(history.names(""), ElementsAre("a/x")) << "null and texts are no values";
  EXPECT_EQ(history.sum("a/x"), 3.5);
  EXPECT_TRUE(history.points("a/y").empty());
  EXPECT_TRUE(history.left_out().is_empty());
}

TEST(MetricHistoryTest, DamagedRowsAreNamedAndLeftOut) {
  const MetricHistory history = history_of(
      "{\"step\": 1, \"a\": 1}\n"
      "{\"step\": 2, \"a\"\n"
      "[3]\n"
      "{\"a\": 4}\n"
      "{\"step\": \"five\", \"a\": 5}\n"
      "\xFF\xFE\n"
      "{\"step\": 1, \"a\": 6}\n"
      "{\"step\": 7, \"a\": 7}\n"
      "{\"step\": 8, \"a\": 8e9");  // a row that is being written
  EXPECT_THAT(history.points("a"), ElementsAre(Pair(1, 1), Pair(7, 7)));
  const std::vector<std::string>& sentences = history.left_out().sentences();
  ASSERT_EQ(sentences.size(), 7u);
  for (const auto& [i, part] : {std::pair(0, "metrics.jsonl:2"),
                                {1, "metrics.jsonl:3"},
                                {2, "metrics.jsonl:4"},
                                {3, "metrics.jsonl:5"},
                                {4, "metrics.jsonl:6"},
                                {5, "a row of step 1 after one of step 1"},
                                {6, "metrics.jsonl:9"}})
    EXPECT_THAT(sentences[static_cast<size_t>(i)], HasSubstr(part));
}

TEST(MetricHistoryTest, ManyDamagedRowsAreCounted) {
  std::string rows;
  for (int i = 0; i < 50; ++i) rows += "x\n";
  const MetricHistory history = history_of(rows);
  EXPECT_EQ(history.left_out().sentences().size(), LeftOut::kMaxSentences);
  EXPECT_EQ(history.left_out().more(), 30);
}

TEST(MetricHistoryTest, TooManyNamesEndTheReading) {
  std::string rows;
  for (int step = 0; step < 6; ++step) {
    rows += "{\"step\": " + std::to_string(step);
    for (int i = 0; i < 1000; ++i) rows += ", \"m" + std::to_string(step * 1000 + i) + "\": 1";
    rows += "}\n";
  }
  const MetricHistory history = history_of(rows);
  EXPECT_EQ(history.names("").size(), MetricHistory::kMaxNames);
  EXPECT_THAT(history.left_out().sentences(), ElementsAre(HasSubstr("more than 5000 metrics")));
}

TEST(MetricHistoryTest, MissingFileIsAnInputError) {
  EXPECT_THROW(MetricHistory("/no/such/metrics.jsonl"), InputError);
}

TEST(MetricHistoryTest, HeldOutScoreIsOfAllSourcesOrOfTheFirst) {
  EXPECT_THAT(held_out_score(history_of("{\"step\": 1, \"val-core/b/reward/mean@1\": 0.5, "
                                        "\"val-core/a/reward/mean@1\": 0.25}\n")),
              ElementsAre(Pair(1, 0.25)));
  EXPECT_THAT(held_out_score(history_of("{\"step\": 1, \"val-core/a/reward/mean@1\": 0.25, "
                                        "\"main/validation_score\": 0.75}\n")),
              ElementsAre(Pair(1, 0.75)));
}

TEST(MetricHistoryTest, AcceptanceLengthIsOfTheModelInUse) {
  EXPECT_THAT(offline_acceptance(
                  history_of("{\"step\": 1, \"drafter/acceptance_length/before\": 1, "
                             "\"drafter/acceptance_length/after\": 2, \"drafter/published\": 1}\n"
                             "{\"step\": 2, \"drafter/acceptance_length/before\": 2.5, "
                             "\"drafter/acceptance_length/after\": 1.5, \"drafter/published\": 0}\n"
                             "{\"step\": 3, \"drafter/acceptance_length/before\": 2.25}\n")),
              ElementsAre(Pair(1, 2), Pair(2, 2.5), Pair(3, 2.25)));
}

}  // namespace
}  // namespace tlt::run

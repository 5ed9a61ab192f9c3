// SPDX-License-Identifier: Apache-2.0
#include "base/metrics.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files.h"
#include "base/random.h"
#include "tests/support/test_folder.h"

namespace tlt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::vector<Metrics::Entry> entries(const Metrics& metrics) {
  return {metrics.begin(), metrics.end()};
}

TEST(MetricsTest, NamesKeepTheirOrderAndTheLastValue) {
  Metrics metrics;
  metrics.set("b", 1);
  metrics.set("a", 2);
  metrics.set("b", 3);
  EXPECT_THAT(entries(metrics), ElementsAre(Pair("b", 3), Pair("a", 2)));
  EXPECT_EQ(metrics.find("a"), 2);
  EXPECT_EQ(metrics.find("c"), std::nullopt);
  EXPECT_EQ(metrics.at("b"), 3);
  EXPECT_THROW(metrics.at("c"), Error);
}

TEST(MetricsTest, StatsAreMeanMaxAndMin) {
  Metrics metrics;
  const std::vector<float> scores = {1, -2, 4};
  metrics.add_stats("critic/score", scores);
  EXPECT_THAT(entries(metrics),
              ElementsAre(Pair("critic/score/mean", 1), Pair("critic/score/max", 4),
                          Pair("critic/score/min", -2)));
}

TEST(MetricsTest, StatsWithoutValuesSetNothing) {
  Metrics metrics;
  metrics.add_stats("x", std::vector<double>{});
  EXPECT_EQ(metrics.size(), 0u);
}

TEST(MetricsTest, OneNanMakesAllStatsNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& values : {std::vector{nan, 1.0}, {1.0, nan}, {1.0, nan, 2.0}}) {
    Metrics metrics;
    metrics.add_stats("x", values);
    for (const auto& [name, value] : metrics) EXPECT_TRUE(std::isnan(value)) << name;
  }
}

TEST(MetricsTest, MergeTakesTheValuesOfTheOther) {
  Metrics metrics, other;
  metrics.set("a", 1);
  metrics.set("b", 2);
  other.set("b", 3);
  other.set("c", 4);
  metrics.merge(other);
  EXPECT_THAT(entries(metrics), ElementsAre(Pair("a", 1), Pair("b", 3), Pair("c", 4)));
}

TEST(MetricsTest, JsonHasStepFirstAndNullForNonFinite) {
  Metrics metrics;
  metrics.set("z", 0.5);
  metrics.set("a\"b", std::numeric_limits<double>::infinity());
  EXPECT_EQ(metrics.to_json(7), R"({"step":7,"z":0.5,"a\"b":null})");
}

TEST(MetricsTest, JsonKeepsEveryBitOfADouble) {
  RandomStream random(1, {});
  for (int i = 0; i < 2'000; ++i) {
    const double value = std::bit_cast<double>(random.below(UINT64_MAX));
    if (!std::isfinite(value)) continue;
    Metrics metrics;
    metrics.set("x", value);
    ASSERT_EQ(nlohmann::json::parse(metrics.to_json(0))["x"].get<double>(), value);
  }
}

class MetricsWriterTest : public testing::Test {
 protected:
  void write_steps(int64_t last_step, int64_t first, int64_t last) {
    MetricsWriter writer(folder_.path(), last_step);
    for (int64_t step = first; step <= last; ++step) {
      Metrics metrics;
      metrics.set("x", static_cast<double>(step));
      writer.write(step, metrics);
    }
  }
  std::string lines() const { return read_file(folder_ / "metrics.jsonl", 10'000); }
  // What a run that is resumed after `last_step` says.
  std::string warning_of_resume(int64_t last_step) {
    testing::internal::CaptureStderr();
    write_steps(last_step, 1, 0);
    return testing::internal::GetCapturedStderr();
  }

  const TestFolder folder_;
};

TEST_F(MetricsWriterTest, EachStepIsWrittenImmediately) {
  MetricsWriter writer(folder_.path(), -1);
  EXPECT_EQ(lines(), "");
  writer.write(0, Metrics());
  EXPECT_EQ(lines(), "{\"step\":0}\n");
  writer.write(1, Metrics());
  EXPECT_EQ(lines(), "{\"step\":0}\n{\"step\":1}\n");
}

TEST_F(MetricsWriterTest, ResumedRunRemovesLaterStepsAndTornLine) {
  write_steps(-1, 1, 4);
  FileHandle(folder_ / "metrics.jsonl", O_WRONLY | O_APPEND).write("{\"step\": 2, \"to");
  write_steps(/*last_step=*/2, 3, 3);
  EXPECT_EQ(lines(), "{\"step\":1,\"x\":1.0}\n{\"step\":2,\"x\":2.0}\n{\"step\":3,\"x\":3.0}\n");
}

TEST_F(MetricsWriterTest, NewRunStartsANewFile) {
  write_steps(-1, 1, 4);
  write_steps(-1, 1, 1);
  EXPECT_EQ(lines(), "{\"step\":1,\"x\":1.0}\n");
}

TEST_F(MetricsWriterTest, ResumedRunWithoutMetricsFileIsFine) {
  write_steps(5, 6, 6);
  EXPECT_EQ(lines(), "{\"step\":6,\"x\":6.0}\n");
}

// A row cannot be made again: what is left of it is kept, and the run says so.
TEST_F(MetricsWriterTest, ResumedRunNamesDamagedAndMissingRows) {
  const std::string file = folder_ / "metrics.jsonl", row = "{\"step\":2,\"x\":2.0}\n";
  write_steps(-1, 0, 4);
  EXPECT_EQ(warning_of_resume(/*last_step=*/4), "");
  std::string text = lines();
  text.replace(text.find(row), 1, 1, 'z');
  write_file_atomic(file, text);
  EXPECT_THAT(warning_of_resume(4), HasSubstr(file +
                                              ": 1 of 4 steps have no row, which the report "
                                              "leaves out; damaged ones are in " +
                                              file + ".damaged\n"));
  EXPECT_EQ(read_file(file + ".damaged", 100), "z" + row.substr(1));
  EXPECT_EQ(lines().find("\"step\":2"), std::string::npos);
  write_steps(-1, 1, 2);
  write_file_atomic(file, lines().substr(0, lines().size() - 2));
  EXPECT_THAT(warning_of_resume(2), HasSubstr("1 of 2 steps have no row"));
  EXPECT_THAT(read_file(file + ".damaged", 100), HasSubstr("\n{\"step\":2,\"x\":2.0"));
  std::filesystem::remove(file);
  EXPECT_THAT(warning_of_resume(4),
              HasSubstr("4 of 4 steps have no row, which the report leaves out\n"));
}

TEST_F(MetricsWriterTest, EachRunHasItsTensorboardFile) {
  write_steps(-1, 1, 2);
  write_steps(2, 3, 4);
  const std::filesystem::directory_iterator files(folder_ / "tensorboard");
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

}  // namespace
}  // namespace tlt

// SPDX-License-Identifier: Apache-2.0
#include "tracker/trackers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "base/files.h"
#include "base/metrics.h"
#include "tests/support/tracker_package.h"

namespace tlt::tracker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class TrackersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tests::has_python()) GTEST_SKIP() << "no python3";
  }

  TrackedRun run(const std::vector<std::string>& loggers = {"console", "wandb"}) const {
    return {.loggers = loggers,
            .folder = package_.folder(),
            .project = "p",
            .name = "n",
            .config = {{"trainer.seed", 7}}};
  }
  // A run of one step.
  void log_step(int64_t step) {
    Trackers trackers(run());
    Metrics metrics;
    metrics.set("x", 1.0 / 3);
    trackers.log(step, metrics);
    trackers.finish(0);
  }

  tests::TrackerPackage package_{"wandb"};
};

TEST_F(TrackersTest, NoTrackerNoProcessNoFile) {
  Trackers trackers(run({"console", "file", "tensorboard"}));
  EXPECT_TRUE(trackers.is_empty());
  trackers.log(1, {});
  trackers.finish(0);
  EXPECT_EQ(package_.calls().size(), 0u);
  EXPECT_FALSE(std::filesystem::exists(package_.folder() + "/trackers.json"));
}

TEST_F(TrackersTest, ResumedRunContinuesTheSameRun) {
  log_step(1);
  const Json ids = Json::parse(read_file(package_.folder() + "/trackers.json", 1 << 20));
  EXPECT_EQ(ids, Json::parse(R"({"wandb": {"id": "id-1", "where": "fake://p/n"}})"));
  log_step(2);
  EXPECT_EQ(package_.calls_of("init"),
            (std::vector<Json>{Json::parse(R"({"project": "p", "name": "n", "id": null})"),
                               Json::parse(R"({"project": "p", "name": "n", "id": "id-1"})")}));
  EXPECT_EQ(package_.logged_steps(), (std::vector<int>{1, 2}));
  EXPECT_EQ(package_.calls_of("log")[0]["metrics"]["x"], 1.0 / 3);
}

TEST_F(TrackersTest, DamagedIdsBeginANewRun) {
  for (const char* text : {"", "[]", "{\"wandb\": 3}", "{\"wandb\": {\"id\": 4}}", "\xff"}) {
    package_.clear();
    write_file_atomic(package_.folder() + "/trackers.json", text);
    log_step(1);
    EXPECT_EQ(package_.calls_of("init")[0]["id"], nullptr) << text;
  }
}

TEST_F(TrackersTest, NewRunThatDoesNotStartIsRefusedAResumedOneContinues) {
  package_.set_fault("raise in init");
  try {
    Trackers trackers(run());
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("trainer.logger has wandb"), HasSubstr("no API key"),
                                    HasSubstr("WANDB_MODE=offline")));
  }
  package_.set_fault("");
  log_step(1);
  package_.set_fault("raise in init");
  EXPECT_NO_THROW(log_step(2));
  EXPECT_EQ(package_.logged_steps(), (std::vector<int>{1}));
}

// wandb is the first to start.
TEST_F(TrackersTest, ARefusedStartKeepsTheRunsOfOthers) {
  write_file_atomic(package_.folder() + "/trackio.py",
                    "import wandb\n"
                    "class Run: name, url = 'theirs', 'fake://trackio'\n"
                    "def init(project, name, config, resume):\n"
                    "    wandb.write({'trackio': name, 'resume': resume})\n"
                    "    return Run()\n"
                    "def finish(): wandb.write({'end': 'trackio'})\n");
  const std::vector<std::string> both = {"wandb", "trackio"};
  package_.set_fault("raise in init");
  EXPECT_THROW(Trackers trackers(run(both)), InputError);
  EXPECT_EQ(Json::parse(read_file(package_.folder() + "/trackers.json", 1 << 20)),
            Json::parse(R"({"trackio": {"id": "theirs", "where": "fake://trackio"}})"));
  EXPECT_EQ(package_.calls_of("end").size(), 1U) << "its run has ended";
  package_.set_fault("");
  Trackers(run(both)).finish(0);
  EXPECT_EQ(package_.calls_of("trackio"), (std::vector<Json>{"n", "theirs"}));
  EXPECT_EQ(package_.calls_of("resume"), (std::vector<Json>{"never", "allow"}));
}

TEST_F(TrackersTest, RunThatStartsAfterTheLastMetricIsContinued) {
  TrackedRun late = run();
  late.start_time = std::chrono::milliseconds(0);
  Trackers(late).finish(0);
  EXPECT_EQ(Json::parse(read_file(package_.folder() + "/trackers.json", 1 << 20))["wandb"]["id"],
            "id-1");
}

TEST_F(TrackersTest, TableArrivesWithTextsCut) {
  Trackers trackers(run());
  std::string text(kMaxCellBytes - 1, 'a');
  text += "é and more";  // the limit is inside the character
  trackers.log_table({.name = "val/generations",
                      .step = 4,
                      .columns = {"step", "output", "score"},
                      .rows = {{4, text, 0.5}, {4, "short\nb \xff", 1.0}}});
  trackers.finish(0);
  const Json call = package_.calls_of("log").at(0);
  EXPECT_EQ(call["step"], 4);
  const Json& table = call["metrics"]["val/generations"];
  EXPECT_EQ(table["columns"], Json({"step", "output", "score"}));
  EXPECT_EQ(table["data"][0][1].get<std::string>(), std::string(kMaxCellBytes - 1, 'a') + "…");
  EXPECT_EQ(table["data"][1], Json::parse("[4, \"short\\nb \xEF\xBF\xBD\", 1.0]"));
}

TEST_F(TrackersTest, FailedRunEndsWithItsCode) {
  { Trackers trackers(run()); }
  EXPECT_EQ(package_.calls_of("finish"), std::vector<Json>{1});
}

}  // namespace
}  // namespace tlt::tracker

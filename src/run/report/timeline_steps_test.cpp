// SPDX-License-Identifier: Apache-2.0
#include "run/report/timeline_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/timeline.h"
#include "tests/support/test_folder.h"

namespace tlt::run {
namespace {

using Json = nlohmann::json;

class TimelineStepsTest : public ::testing::Test {
 protected:
  Json read(size_t max_steps = 16, size_t max_numbers = 10'000) {
    return timeline_steps(path_, max_steps, max_numbers, left_out_);
  }
  static std::vector<int64_t> numbers(const Json& timeline) {
    std::vector<int64_t> steps;
    for (const Json& step : timeline.at("steps")) steps.push_back(step.at("step"));
    return steps;
  }

  const TestFolder folder_;
  const std::string path_ = folder_ / "timeline.json";
  FakeClock clock_{100};
  LeftOut left_out_;
};

// As two workers append to it: base/timeline.h adds the time of the day, which they read apart.
constexpr const char* kTwoWorkers = R"([
{"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"rollout"}},
{"name":"step 1","ph":"X","pid":0,"tid":1,"ts":1000,"dur":4000000},
{"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"rollout"}},
{"name":"step 1","ph":"X","pid":1,"tid":1,"ts":1000,"dur":1000000},
{"name":"thread_name","ph":"M","pid":1,"tid":2,"args":{"name":"draft training"}},
{"name":"draft step 1","ph":"X","pid":1,"tid":2,"ts":1001000,"dur":1000000},
{"name":"draft step 2","ph":"X","pid":1,"tid":2,"ts":2001000,"dur":1000000},
{"name":"thread_name","ph":"M","pid":1,"tid":3,"args":{"name":"another lane"}},
{"name":"x","ph":"X","pid":1,"tid":3,"ts":1000,"dur":9000000},
{"name":"thread_name","ph":"M","pid":0,"tid":2,"args":{"name":"update"}},
{"name":"step 1","ph":"X","pid":0,"tid":2,"ts":4001000,"dur":6000000}
])";

TEST_F(TimelineStepsTest, HasWhatEachWorkerDid) {
  write_file_atomic(path_, kTwoWorkers);
  const Json step = read().at("steps").at(0);
  EXPECT_EQ(step.at("step"), 1);
  EXPECT_EQ(step.at("length"), 10'000'000);
  EXPECT_EQ(step.at("workers").at(0),
            Json({{"worker", 0},
                  {"spans", {{"rollout", {0, 4'000'000}}, {"update", {4'000'000, 6'000'000}}}}}));
  EXPECT_EQ(step.at("workers").at(1),
            Json({{"worker", 1},
                  {"spans",
                   {{"rollout", {0, 1'000'000}},
                    {"draft training", {1'000'000, 2'000'000}}}}}))  // two that touch are one
      << "no lane that the page does not know";
  EXPECT_TRUE(left_out_.is_empty());
}

TEST_F(TimelineStepsTest, ChoosesTheFirstTheLastAndTheSlowest) {
  {
    Timeline timeline(path_, 0, clock_);
    double start = 100;
    for (int step = 1; step <= 100; ++step) {
      timeline.span(kRolloutLane, "step " + std::to_string(step), start, start + 0.5);
      start += step == 42 ? 30 : 1;
    }
  }
  EXPECT_EQ(numbers(read()).size(), 16u);
  const std::vector<int64_t> steps = numbers(read());
  for (const int64_t step : {1, 2, 3, 42, 98, 99, 100}) EXPECT_THAT(steps, testing::Contains(step));
  EXPECT_TRUE(std::ranges::is_sorted(steps));
  EXPECT_EQ(numbers(read(16, 9)).size(), 4u) << "two numbers a step";
  EXPECT_EQ(numbers(read(1, 0)).size(), 1u) << "one step at least";
}

TEST_F(TimelineStepsTest, SpansAreCutAtTheEndsOfAStep) {
  {
    Timeline timeline(path_, 0, clock_);
    timeline.span(kValidationLane, kValidationLane, 90, 99);
    timeline.span(kSaveLane, "save", 99, 100.5);
    timeline.span(kRolloutLane, "step 1", 100, 101);
    timeline.span(kUpdateLane, "step 1", 101, 105);
    timeline.span(kRolloutLane, "step 2", 102, 103);
  }
  const Json spans = read().at("steps").at(0).at("workers").at(0).at("spans");
  EXPECT_FALSE(spans.contains("validation")) << "before the step";
  EXPECT_EQ(spans.at("save"), Json({0, 500'000}));
  EXPECT_EQ(spans.at("update"), Json({1'000'000, 1'000'000}));
}

TEST_F(TimelineStepsTest, WithoutRolloutsThereIsNone) {
  EXPECT_EQ(read(), nullptr) << "no file";
  { Timeline(path_, 0, clock_).span(kUpdateLane, "step 1", 100, 101); }
  EXPECT_EQ(read(), nullptr);
}

TEST_F(TimelineStepsTest, SkipsIncompleteEvents) {
  { Timeline(path_, 0, clock_).span(kRolloutLane, "step 1", 100, 101); }
  const std::string whole = read_file(path_, 10'000);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write_file_atomic(path_, whole.substr(0, bytes));
    EXPECT_NO_THROW(static_cast<void>(read())) << bytes;
  }
}

TEST_F(TimelineStepsTest, OtherFilesHaveNone) {
  const std::string events[] = {
      std::string(4096, '\0'),
      std::string(100'000, '['),
      R"({"tid": "x", "pid": 1, "ph": "X"})",
      R"({"tid": 1})",
      R"({"tid": 1, "pid": 1, "ph": "M", "args": 3})",
      R"({"tid": 1, "pid": 1000000, "ph": "M", "args": {"name": "rollout"}},)"
      "\n"
      R"({"tid": 1, "pid": 1000000, "ph": "X", "name": "step 1", "ts": 1, "dur": 1})",
      R"({"tid": 1, "pid": 1, "ph": "M", "args": {"name": "rollout"}},)"
      "\n"
      R"({"tid": 1, "pid": 1, "ph": "X", "name": "step 1", "ts": 1, "dur": -1})"
      "\n"
      R"({"tid": 1, "pid": 1, "ph": "X", "name": "step 99999999999999999999", "ts": 1, "dur": 1})"};
  for (const std::string& event : events) {
    write_file_atomic(path_, event);
    EXPECT_EQ(read(), nullptr) << event.substr(0, 200);
  }
}

}  // namespace
}  // namespace tlt::run

// SPDX-License-Identifier: Apache-2.0
#include "run/report/timeline_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/timeline.h"
#include "tests/support/test_folder.h"

namespace tlt::run {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TimelinePictureTest : public ::testing::Test {
 protected:
  const TestFolder folder_;
  const std::string path_ = folder_ / "timeline.json";
  FakeClock clock_{100};
};

TEST_F(TimelinePictureTest, DraftTrainingFillsIdleGaps) {
  {
    Timeline first(path_, 0, clock_), second(path_, 1, clock_);
    first.span(kRolloutLane, "step 1", 100, 104);
    first.span(kUpdateLane, "step 1", 104, 110);
    second.span(kRolloutLane, "step 1", 100, 101);
    second.span(kDraftLane, "draft step 1", 101, 102);
    second.span(kDraftLane, "draft step 2", 102, 103);
    second.span(kUpdateLane, "step 1", 104, 110);
    second.span("another lane", "x", 100, 110);
  }
  const std::string svg = draw_timeline(path_, "demo");
  EXPECT_THAT(svg, HasSubstr("demo: step 1 to step 1"));
  EXPECT_THAT(svg, HasSubstr("worker 0"));
  EXPECT_THAT(svg, HasSubstr("worker 1"));
  EXPECT_THAT(svg, HasSubstr("rollout 25 %"));  // 5 of 20 worker-seconds
  EXPECT_THAT(svg, HasSubstr("update 60 %"));
  EXPECT_THAT(svg, HasSubstr("draft model training 10 %"));
  EXPECT_THAT(svg, HasSubstr("waiting 5 %"));
  EXPECT_THAT(svg, Not(HasSubstr("validation"))) << "no such span";
  // 880 pixels for 10 seconds: two draft steps are one bar of 176.
  EXPECT_THAT(svg, HasSubstr("x='178.0' y='138.0' width='176.0'"));
}

TEST_F(TimelinePictureTest, DrawsOnlyTheFirstSteps) {
  {
    Timeline timeline(path_, 0, clock_);
    timeline.span(kValidationLane, kValidationLane, 90, 99);
    for (int step = 1; step <= 9; ++step)
      timeline.span(kRolloutLane, "step " + std::to_string(step), 100 + step, 100.5 + step);
  }
  const std::string svg = draw_timeline(path_, "run", 3);
  EXPECT_THAT(svg, HasSubstr("step 1 to step 3"));
  EXPECT_THAT(svg, Not(HasSubstr("step 4")));
  EXPECT_THAT(svg, Not(HasSubstr("validation"))) << "before the first step";
}

TEST_F(TimelinePictureTest, WithoutRolloutsGivesNoPicture) {
  { Timeline(path_, 0, clock_).span(kUpdateLane, "step 1", 100, 101); }
  EXPECT_EQ(draw_timeline(path_, "run"), "");
}

TEST_F(TimelinePictureTest, SkipsIncompleteEvents) {
  { Timeline(path_, 0, clock_).span(kRolloutLane, "step 1", 100, 101); }
  const std::string whole = read_file(path_, 10'000);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write_file_atomic(path_, whole.substr(0, bytes));
    EXPECT_NO_THROW(static_cast<void>(draw_timeline(path_, "run"))) << bytes;
  }
}

TEST_F(TimelinePictureTest, OtherFilesGiveNoPicture) {
  const std::string events[] = {
      std::string(4096, '\0'), R"({"tid": "x", "pid": 1, "ph": "X"})", R"({"tid": 1})",
      R"({"tid": 1, "pid": 1, "ph": "M", "args": 3})",
      R"({"tid": 1, "pid": 1000000, "ph": "M", "args": {"name": "rollout"}},)"
      "\n"
      R"({"tid": 1, "pid": 1000000, "ph": "X", "name": "a", "ts": 1, "dur": 1})"};
  for (const std::string& event : events) {
    write_file_atomic(path_, "[\n" + event + "\n]\n");
    EXPECT_EQ(draw_timeline(path_, "run"), "") << event;
  }
}

}  // namespace
}  // namespace tlt::run

// SPDX-License-Identifier: Apache-2.0
#include "base/timeline.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "base/check.h"
#include "tests/support/test_folder.h"

namespace tlt {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class TimelineTest : public testing::Test {
 protected:
  json events() const { return json::parse(read_file(path_, 64 << 20)); }

  // The events of one phase: "X" spans, "C" counters, "M" names.
  std::vector<json> events(const char* phase) const {
    std::vector<json> found;
    for (const json& event : events()) {
      if (event.at("ph") == phase) found.push_back(event);
    }
    return found;
  }

  const TestFolder folder_;
  const std::string path_ = folder_ / "timeline.json";
  FakeClock clock_{100};
};

TEST_F(TimelineTest, SpanHasProcessLaneAndMicroseconds) {
  const double now = wall_seconds();
  {
    Timeline timeline(path_, 3, clock_);
    timeline.span("rollout", "step 1", 101, 101.5);
    timeline.span("train", "step 1", 101.5, 102);
    timeline.span("rollout", "step \"2\"", 102, 102.000001);
  }
  const std::vector<json> spans = events("X");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0]["pid"], 3);
  EXPECT_EQ(spans[0]["tid"], spans[2]["tid"]);
  EXPECT_NE(spans[0]["tid"], spans[1]["tid"]);
  EXPECT_EQ(spans[0]["dur"], 500'000);
  EXPECT_EQ(spans[2]["dur"], 1);
  EXPECT_EQ(spans[2]["name"], "step \"2\"");
  EXPECT_NEAR(spans[0]["ts"].get<double>(), (now + 1) * 1e6, 5e6);
  EXPECT_EQ(spans[0]["ts"].get<int64_t>() + 500'000, spans[1]["ts"].get<int64_t>());
  std::set<std::string> names;
  for (const json& event : events("M")) names.insert(event["args"]["name"]);
  EXPECT_EQ(names, (std::set<std::string>{"worker 3", "rollout", "train"}));
}

TEST_F(TimelineTest, ConsecutiveSpansNeverOverlap) {
  {
    Timeline timeline(path_, 0, clock_);
    double time = 100;
    for (int i = 1; i < 2'000; ++i) {
      const double next = time + 1.7e-6 * i;
      timeline.span("lane", "x", time, next);
      time = next;
    }
  }
  int64_t end = 0;
  for (const json& span : events("X")) {
    if (end) {
      ASSERT_EQ(span["ts"].get<int64_t>(), end);
    }
    end = span["ts"].get<int64_t>() + span["dur"].get<int64_t>();
  }
}

TEST_F(TimelineTest, ScopeIsASpan) {
  {
    Timeline timeline(path_, 0, clock_);
    const TimelineSpan outer(&timeline, "train", "outer");
    clock_.advance(1);
    const TimelineSpan inner(&timeline, "train", "inner");
    clock_.advance(2);
  }
  const std::vector<json> spans = events("X");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["name"], "inner");
  EXPECT_EQ(spans[0]["dur"], 2'000'000);
  EXPECT_EQ(spans[1]["dur"], 3'000'000);
}

TEST_F(TimelineTest, ScopeWithoutTimelineDoesNothing) {
  const TimelineSpan span(nullptr, "lane", "name");
}

TEST_F(TimelineTest, CounterHasAValueAndATime) {
  {
    Timeline timeline(path_, 0, clock_);
    timeline.counter("free_pages", 12.5);
    timeline.counter("free_pages", std::numeric_limits<double>::quiet_NaN());
    timeline.counter("free_pages", 1e30);
  }
  ASSERT_EQ(events("C").size(), 2u);
  EXPECT_EQ(events("C")[0]["args"]["value"], 12.5);
}

TEST_F(TimelineTest, FileIsValidJsonAfterEveryFlush) {
  Timeline timeline(path_, 0, clock_);
  for (size_t i = 1; i <= 5; ++i) {
    timeline.span("lane", "x", 100, 101);
    timeline.flush();
    EXPECT_EQ(events("X").size(), i);
  }
}

TEST_F(TimelineTest, ManySpansAreFlushedBeforeTheEnd) {
  Timeline timeline(path_, 0, clock_);
  for (int i = 0; i < 5'000; ++i) timeline.span("lane", "x", 100, 101);
  EXPECT_GT(events("X").size(), 4'000u);
}

TEST_F(TimelineTest, WorkersAndAResumedRunAppendToTheSameFile) {
  {
    Timeline first(path_, 0, clock_), second(path_, 1, clock_);
    for (int i = 0; i < 3; ++i) {
      first.span("lane", "x", 100, 101);
      first.flush();
      second.span("lane", "x", 100, 101);
      second.flush();
    }
  }
  { Timeline(path_, 0, clock_).span("lane", "x", 100, 101); }
  EXPECT_EQ(events("X").size(), 7u);
}

TEST_F(TimelineTest, FileIsRepairedAfterAKilledWriter) {
  {
    Timeline timeline(path_, 0, clock_);
    timeline.span("lane", "a", 100, 101);
    timeline.span("lane", "b", 100, 101);
  }
  const std::string whole = read_file(path_, 10'000);
  for (size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    std::filesystem::remove(path_);
    FileHandle(path_, O_WRONLY | O_CREAT).write(std::string_view(whole).substr(0, bytes));
    {
      Timeline timeline(path_, 0, clock_);
      timeline.span("lane", "last", 100, 101);
    }
    ASSERT_NO_THROW(events()) << "cut after " << bytes << " bytes";
    ASSERT_EQ(events("X").back()["name"], "last") << "cut after " << bytes << " bytes";
  }
}

TEST_F(TimelineTest, LongIncompleteEventIsRemoved) {
  { Timeline(path_, 0, clock_).span("lane", "a", 100, 101); }
  const std::string whole = read_file(path_, 10'000);
  FileHandle file(path_, O_WRONLY);
  file.write_at(static_cast<int64_t>(whole.size()) - 3,
                ",\n{\"name\":\"" + std::string(5'000, 'x'));
  { Timeline(path_, 0, clock_).span("lane", "last", 100, 101); }
  EXPECT_EQ(events("X").back()["name"], "last");
}

// A diagnostic file must not end a run.
TEST_F(TimelineTest, OtherFileIsKeptAndTheRunContinues) {
  for (const std::string& other : {std::string("precious notes"), std::string(4096, '\0')}) {
    write_file_atomic(path_, other);
    testing::internal::CaptureStderr();
    {
      Timeline timeline(path_, 0, clock_);
      for (int i = 0; i < 5'000; ++i) timeline.span("lane", "x", 100, 101);
      timeline.flush();
    }
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("not a timeline of this program"));
    EXPECT_EQ(read_file(path_, 10'000), other);
  }
}

TEST_F(TimelineTest, EventsBeyondTheLimitAreDropped) {
  Timeline timeline(path_, 0, clock_, /*max_events=*/10);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 100; ++i) timeline.span("lane", "x", 100, 101);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("10 events are written; later ones are dropped"));
  timeline.flush();
  EXPECT_EQ(events().size(), 10u);
}

TEST_F(TimelineTest, AnyThreadMayWrite) {
  {
    Timeline timeline(path_, 0);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&timeline, i] {
        for (int j = 0; j < 500; ++j)
          const TimelineSpan span(&timeline, "lane " + std::to_string(i), "x");
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(events("X").size(), 2'000u);
}

}  // namespace
}  // namespace tlt

// SPDX-License-Identifier: Apache-2.0
//
// The golden bytes were written by TensorBoard 2.21: event_pb2.Event(…).SerializeToString() and
// RecordWriter of tensorboard.summary.writer. Its server (--load_fast true and false) and its
// EventAccumulator read a run of 301 steps that was stopped after step 200 and resumed after 150:
// all values were correct, and none of the stopped run was left.
#include "base/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/metrics.h"
#include "tests/support/test_folder.h"

namespace tlt {
namespace {

using namespace tensorboard_internal;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

constexpr double kTime = 1'700'000'000.25;

Metrics some_metrics() {
  Metrics metrics;
  metrics.set("actor/lr", 1e-6);
  metrics.set("loss", -0.5);
  return metrics;
}

// Field by field: wall_time, file_version.
TEST(TensorboardTest, VersionEventHasTheseBytes) {
  EXPECT_EQ(hex(version_event(kTime)),
            "0900001040fc54d941"
            "1a0d627261696e2e4576656e743a32");
}

// wall_time, step as varint, summary of 30 bytes with two values: tag, simple_value.
TEST(TensorboardTest, ScalarsEventHasTheseBytes) {
  EXPECT_EQ(hex(scalars_event(kTime, 300, some_metrics())),
            "0900001040fc54d941"
            "10ac02"
            "2a1e"
            "0a0f"
            "0a086163746f722f6c72"
            "15bd378635"
            "0a0b"
            "0a046c6f7373"
            "15000000bf");
}

// wall_time, step, session_log with status START.
TEST(TensorboardTest, StartEventHasTheseBytes) {
  EXPECT_EQ(hex(start_event(kTime, 3)),
            "0900001040fc54d941"
            "1003"
            "3a020801");
}

TEST(TensorboardTest, RecordHasMaskedChecksumsOfLengthAndMessage) {
  EXPECT_EQ(hex(frame("abc")),
            "0300000000000000"
            "b099490e"
            "616263"
            "6e57f121");
}

TEST(TensorboardTest, FileHasVersionStartAndOneRecordPerStep) {
  const TestFolder folder;
  TensorboardWriter writer(folder / "events", 0);
  const size_t begin = read_file(writer.path(), 10'000).size();
  EXPECT_EQ(begin, (frame(version_event(0)) + frame(start_event(0, 0))).size());
  writer.write(kTime, 300, some_metrics());
  const std::string text = read_file(writer.path(), 10'000);
  EXPECT_EQ(text.substr(begin), frame(scalars_event(kTime, 300, some_metrics())));
}

TEST(TensorboardTest, FileSaysWhichStepsItReplaces) {
  const TestFolder folder;
  const TensorboardWriter writer(folder.path(), 7);
  const std::string text = read_file(writer.path(), 1'000);
  EXPECT_THAT(hex(text), testing::HasSubstr("1007"
                                            "3a020801"));
}

TEST(TensorboardTest, FilesOfOneSecondHaveDifferentNames) {
  const TestFolder folder;
  const TensorboardWriter a(folder.path(), 0), b(folder.path(), 0);
  EXPECT_NE(a.path(), b.path());
  EXPECT_THAT(a.path(), testing::MatchesRegex(".*/events.out.tfevents.[0-9]+\\..*"));
}

TEST(TensorboardTest, NegativeStepThrows) {
  const TestFolder folder;
  EXPECT_THROW(TensorboardWriter(folder.path(), 0).write(0, -1, Metrics()), Error);
}

}  // namespace
}  // namespace tlt

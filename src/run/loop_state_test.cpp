// SPDX-License-Identifier: Apache-2.0
#include "run/loop_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace tlt::run {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LoopStateTest, RoundTripsThroughJson) {
  const LoopState state{.step = 12, .gen_batches = 30, .cursor = {.epoch = 3, .index = 48}};
  const SavedState saved = parse_state(
      to_json({.state = state, .optimizer_steps = 24, .skipped_in_row = 2}), "loop.json");
  EXPECT_EQ(saved.state.step, 12);
  EXPECT_EQ(saved.state.gen_batches, 30);
  EXPECT_EQ(saved.state.cursor, state.cursor);
  EXPECT_EQ(saved.optimizer_steps, 24);
  EXPECT_EQ(saved.skipped_in_row, 2);
}

TEST(LoopStateTest, MissingGenBatchesMeansOnePerStep) {
  const char* text = R"({"step": 9, "epoch": 0, "index": 4, "optimizer_steps": 9})";
  EXPECT_EQ(parse_state(text, "loop.json").state.gen_batches, 9);
  EXPECT_EQ(parse_state(text, "loop.json").skipped_in_row, 0);
}

TEST(LoopStateTest, BrokenJsonNamesTheFile) {
  const std::string deep =
      "{\"step\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  for (const std::string& text :
       std::vector<std::string>{deep, "", "{", "[]", "{\"step\": 1}", "{\"step\": \"one\"}",
                                "{\"step\": 999999999999999999999999}", "{\"step\": -1}",
                                "{\"step\": 18446744073709551615}", "{\"step\": 1.5}"}) {
    try {
      parse_state(text, "here/loop.json");
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("here/loop.json"), HasSubstr("the one before"),
                                      Not(HasSubstr("json.exception"))));
    }
  }
}

}  // namespace
}  // namespace tlt::run

// SPDX-License-Identifier: Apache-2.0
#include "base/json_depth.h"

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"

namespace tlt {
namespace {

std::string lists(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonDepthTest, CountsNestedListsAndObjects) {
  EXPECT_FALSE(is_too_deep_json(lists(kMaxJsonDepth)));
  EXPECT_TRUE(is_too_deep_json(lists(kMaxJsonDepth + 1)));
  std::string flat = "[";
  for (int i = 0; i < 2 * kMaxJsonDepth; ++i) flat += "{\"a\":[]},";
  EXPECT_FALSE(is_too_deep_json(flat + "1]"));
  EXPECT_TRUE(is_too_deep_json("{\"a\":" + lists(kMaxJsonDepth) + "}"));
}

TEST(JsonDepthTest, BracketsInStringsDoNotCount) {
  EXPECT_FALSE(is_too_deep_json("\"" + lists(1000) + "\""));
  EXPECT_FALSE(is_too_deep_json("\"\\\"" + std::string(1000, '[')));
  EXPECT_TRUE(is_too_deep_json("\"\\\\\"" + std::string(1000, '[')));
  EXPECT_FALSE(is_too_deep_json("\"\\"));
}

TEST(JsonDepthTest, ErrorSaysWhere) {
  check_json_depth("[]", "a.json");
  try {
    check_json_depth(lists(501), "a.json");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "a.json: lists and objects nested more than 500 deep are not supported");
  }
}

}  // namespace
}  // namespace tlt

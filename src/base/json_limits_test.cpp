// SPDX-License-Identifier: Apache-2.0
#include "base/json_limits.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"

namespace tlt {
namespace {

std::string lists(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonLimitsTest, CountsNestedListsAndObjects) {
  EXPECT_FALSE(is_too_deep_json(lists(kMaxJsonDepth)));
  EXPECT_TRUE(is_too_deep_json(lists(kMaxJsonDepth + 1)));
  std::string flat = "[";
  for (int i = 0; i < 2 * kMaxJsonDepth; ++i) flat += "{\"a\":[]},";
  EXPECT_FALSE(is_too_deep_json(flat + "1]"));
  EXPECT_TRUE(is_too_deep_json("{\"a\":" + lists(kMaxJsonDepth) + "}"));
}

TEST(JsonLimitsTest, BracketsInStringsDoNotCount) {
  EXPECT_FALSE(is_too_deep_json("\"" + lists(1000) + "\""));
  EXPECT_FALSE(is_too_deep_json("\"\\\"" + std::string(1000, '[')));
  EXPECT_TRUE(is_too_deep_json("\"\\\\\"" + std::string(1000, '[')));
  EXPECT_FALSE(is_too_deep_json("\"\\"));
}

std::string object(int64_t members) {
  std::string text = "{";
  for (int64_t i = 0; i < members; ++i) text += "\"" + std::to_string(i) + "\":[{\"a:\":1}],";
  return text + "\"last\":{}}";
}

TEST(JsonLimitsTest, CountsTheMembersOfOneObject) {
  check_json_limits(object(kMaxJsonMembers - 1), "a.json");
  EXPECT_THROW(check_json_limits(object(kMaxJsonMembers), "a.json"), InputError);
  EXPECT_THROW(check_json_limits("[1," + object(kMaxJsonMembers) + "]", "a.json"), InputError);
  check_json_depth(object(kMaxJsonMembers), "a.json");
}

// A list of n values, each also in a list.
std::string list_of_lists(int64_t values) {
  std::string text = "[";
  for (int64_t i = 0; i < values; ++i) text += "[1],";
  return text + "\"[,{\"]";
}

TEST(JsonLimitsTest, CountsTheValuesOfTheText) {
  check_json_limits(list_of_lists(kMaxJsonValues / 2 - 1), "a.json");
  EXPECT_THROW(check_json_limits(list_of_lists(kMaxJsonValues / 2), "a.json"), InputError);
  EXPECT_TRUE(parse_limited_json(list_of_lists(kMaxJsonValues / 2)).is_discarded());
}

TEST(JsonLimitsTest, WhatExceedsALimitIsNotParsed) {
  EXPECT_EQ(parse_limited_json(object(3)).size(), 4U);
  for (const std::string& text : {object(kMaxJsonMembers), lists(kMaxJsonDepth + 1), lists(200'000),
                                  std::string("}]:{"), std::string("")})
    EXPECT_TRUE(parse_limited_json(text).is_discarded()) << text.substr(0, 20);
}

TEST(JsonLimitsTest, ErrorSaysWhere) {
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

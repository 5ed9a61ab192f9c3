// SPDX-License-Identifier: Apache-2.0
#include "base/toml_limits.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "tests/support/test_folder.h"

namespace tlt {
namespace {

std::string repeated(const std::string& text, int64_t count) {
  std::string all;
  for (int64_t i = 0; i < count; ++i) all += text;
  return all;
}

TEST(TomlLimitsTest, CountsTheDotsOfAKey) {
  EXPECT_FALSE(exceeds_toml_limits("a" + repeated(".a", kMaxTomlDots) + " = 1"));
  for (const std::string& key :
       {"a" + repeated(".a", kMaxTomlDots + 1), "a" + repeated(" . a", kMaxTomlDots + 1),
        "a" + repeated(".\"b\"", kMaxTomlDots + 1)}) {
    EXPECT_TRUE(exceeds_toml_limits(key + " = 1"));
    EXPECT_TRUE(exceeds_toml_limits("[" + key + "]"));
    EXPECT_TRUE(exceeds_toml_limits("x = 1.5 # a comment\n[[" + key + "]]"));
    EXPECT_TRUE(exceeds_toml_limits("x = {y = 1, " + key + " = 1}"));
  }
  EXPECT_FALSE(exceeds_toml_limits("x = [" + repeated("0.5, ", 20'000) + "]"));
  EXPECT_FALSE(exceeds_toml_limits("a.b = 1.5\n" + repeated("c = 1.5\n", 100)));
}

TEST(TomlLimitsTest, CountsNestedListsAndTables) {
  for (const std::string open : {"[", "{a="}) {
    const std::string close = open == "[" ? "]" : "}";
    const auto nested = [&](int64_t depth) {
      return "x = " + repeated(open, depth) + "1" + repeated(close, depth);
    };
    EXPECT_FALSE(exceeds_toml_limits(nested(kMaxTomlNesting)));
    EXPECT_TRUE(exceeds_toml_limits(nested(kMaxTomlNesting + 1)));
  }
  EXPECT_FALSE(exceeds_toml_limits(repeated("[[a.b]]\nx = [1]\n", 1000)));
}

TEST(TomlLimitsTest, CountsTheKeys) {
  EXPECT_FALSE(exceeds_toml_limits(repeated("a.b = 1\n", kMaxTomlKeys)));
  EXPECT_TRUE(exceeds_toml_limits(repeated("a.b = 1\n", kMaxTomlKeys + 1)));
  EXPECT_TRUE(exceeds_toml_limits(repeated("[a]\n", kMaxTomlKeys + 1)));
  EXPECT_TRUE(exceeds_toml_limits(repeated("a.b.c.d.e.f = 1\n", kMaxTomlKeys / 4)));
}

// What a string or a comment has does not count, and what follows it does.
TEST(TomlLimitsTest, StringsAndCommentsDoNotCount) {
  const std::string many = repeated("a.[{", 100), deep = "\nx = " + repeated("[", 100);
  const std::string quotes = "\"\"\"";
  const std::vector<std::string> texts = {"\"" + many + "\"",
                                          "'" + many + "'",
                                          "\"\\\"" + many + "\"",
                                          "'\\'",
                                          "\"\"",
                                          "''",
                                          quotes + many + "\n\"\"" + many + quotes,
                                          "'''" + many + "\n''\\" + many + "'''",
                                          quotes + many + quotes + "\"",
                                          quotes + many + quotes + "\"\"",
                                          "'''" + many + "''''",
                                          quotes + "\\" + quotes + many + "\\\"" + quotes,
                                          quotes + quotes,
                                          "1 # \"" + many};
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_FALSE(exceeds_toml_limits("x = " + texts[i] + "\ny = 1")) << i;
    EXPECT_TRUE(exceeds_toml_limits("x = " + texts[i] + deep)) << i;
  }
  for (const std::string open : {"\"", "'''", "\"\"\"a\"\"", "#", "\"\\"})
    EXPECT_FALSE(exceeds_toml_limits("x = " + open + many)) << open;
}

TEST(TomlLimitsTest, ErrorSaysWhere) {
  check_toml_limits("a.b = [1, {c = 2}]", "a.toml");
  EXPECT_EQ(thrown_message<InputError>([] { check_toml_limits(repeated("a.", 20), "a.toml"); }),
            "a.toml: a key with more than 16 dots is not supported");
  EXPECT_EQ(thrown_message<InputError>([] { check_toml_limits(repeated("[", 65), "a.toml"); }),
            "a.toml: lists and tables nested more than 64 deep are not supported");
  EXPECT_EQ(thrown_message<InputError>([] { check_toml_limits(repeated("=", 10'001), "a.toml"); }),
            "a.toml: more than 10000 keys, tables and lists are not supported");
}

}  // namespace
}  // namespace tlt

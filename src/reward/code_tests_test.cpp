// SPDX-License-Identifier: Apache-2.0
#include "reward/code_tests.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace tlt::reward {
namespace {

TEST(CodeTestsTest, LastPythonBlockIsTheCode) {
  EXPECT_EQ(code_of("no code"), std::nullopt);
  EXPECT_EQ(code_of("```python\nx = 1\n"), std::nullopt);  // not closed
  EXPECT_EQ(code_of("```python"), std::nullopt);
  EXPECT_EQ(code_of("```"), std::nullopt);
  EXPECT_EQ(code_of("a\n```python\nx = 1\n```\nb\n```python\ny\n```"), "y\n");
  EXPECT_EQ(code_of("```python\nx\n```\nIt prints\n```\n3\n```"), "x\n");
  EXPECT_EQ(code_of("```\nx\n```"), "x\n");
  EXPECT_EQ(code_of("```py\nx\n```\n```"), "x\n");
  EXPECT_EQ(code_of("```python\n```"), "");
}

TEST(CodeTestsTest, OutputsMayDifferInBlanksAndRounding) {
  EXPECT_TRUE(is_same_output("1 2  \n3\n\n", "1 2\n3"));
  EXPECT_TRUE(is_same_output("1\n2\n", "1 2"));
  EXPECT_TRUE(is_same_output("0.33333333", "0.33333334"));
  EXPECT_TRUE(is_same_output("2.0", "2"));
  EXPECT_TRUE(is_same_output("", "\n"));
  EXPECT_FALSE(is_same_output("0.3333", "0.3334"));
  EXPECT_FALSE(is_same_output("1 2 3", "1 2"));
  EXPECT_FALSE(is_same_output("10000001", "10000002"));
  EXPECT_FALSE(is_same_output("a b", "b a"));
  EXPECT_FALSE(is_same_output("", "1"));
  EXPECT_FALSE(is_same_output("nan.", "inf."));
}

TEST(CodeTestsTest, IntegersAreExact) {
  EXPECT_FALSE(is_same_output("1000000.9", "1000000"));
  EXPECT_FALSE(is_same_output("1000000", "1000000.9"));
  EXPECT_TRUE(is_same_output("1000000.0", "1000000"));
  EXPECT_TRUE(is_same_output("1000000.95", "1000000.9"));
  EXPECT_FALSE(is_same_output("9007199254740993.0", "9007199254740992"));
  const auto tests = parse_code_tests(
      R"({"fn_name": "f", "inputs": [[0], [0], [0]], "outputs": [1000000, "100000000000000000000000", 100000000000000000000000]})");
  EXPECT_TRUE(tests[0].is_passed_by("1000000"));
  EXPECT_TRUE(tests[0].is_passed_by("1000000.0"));
  EXPECT_FALSE(tests[0].is_passed_by("1000000.9"));
  for (const int large : {1, 2}) {
    EXPECT_TRUE(tests[large].is_passed_by("100000000000000000000000"));
    EXPECT_FALSE(tests[large].is_passed_by("100000000000000000000001"));
    EXPECT_FALSE(tests[large].is_passed_by("1e23"));
  }
}

TEST(CodeTestsTest, StandardInputAndOutput) {
  const auto tests =
      parse_code_tests(R"({"inputs": ["1 2\n", ["a", "b"]], "outputs": ["3", ["x"]]})");
  ASSERT_EQ(tests.size(), 2U);
  EXPECT_EQ(tests[0].request, (nlohmann::ordered_json{{"stdin", "1 2\n"}}));
  EXPECT_EQ(tests[1].request, (nlohmann::ordered_json{{"stdin", "a\nb\n"}}));
  EXPECT_TRUE(tests[0].is_passed_by("3\n"));
  EXPECT_FALSE(tests[0].is_passed_by("passed"));
  EXPECT_TRUE(tests[1].is_passed_by("x\n"));
}

TEST(CodeTestsTest, CallsTakeListsOrLinesOfJson) {
  const auto tests = parse_code_tests(
      R"({"fn_name": "f", "inputs": [[1, "a"], "[1]\n\"a\"", [0], [0], [0]], "outputs": [[3], "\"s\"", 0.5, "plain", [[1, 2]]]})");
  ASSERT_EQ(tests.size(), 5U);
  EXPECT_EQ(tests[0].request, (nlohmann::ordered_json{{"function", "f"}, {"arguments", {1, "a"}}}));
  EXPECT_EQ(tests[1].request.at("arguments"), nlohmann::ordered_json::parse(R"([[1], "a"])"));
  EXPECT_TRUE(tests[0].is_passed_by("3"));
  EXPECT_TRUE(tests[0].is_passed_by("[3]"));
  EXPECT_FALSE(tests[0].is_passed_by("4"));
  EXPECT_FALSE(tests[0].is_passed_by(""));
  EXPECT_TRUE(tests[1].is_passed_by("\"s\""));
  EXPECT_TRUE(tests[2].is_passed_by("0.50000000001"));
  EXPECT_FALSE(tests[2].is_passed_by("\"0.5\""));
  EXPECT_TRUE(tests[3].is_passed_by("\"plain\""));
  EXPECT_TRUE(tests[4].is_passed_by("[1, 2]"));
  EXPECT_FALSE(tests[4].is_passed_by("[1]"));
}

TEST(CodeTestsTest, StatementsInAnyOfThreeForms) {
  for (const char* form : {R"(["assert f(1) == 2"])", R"({"assert_case": ["assert f(1) == 2"]})",
                           "assert f(1) == 2"}) {
    const auto tests = parse_code_tests(form);
    ASSERT_EQ(tests.size(), 1U) << form;
    EXPECT_EQ(tests[0].request, (nlohmann::ordered_json{{"check", "assert f(1) == 2"}}));
    EXPECT_TRUE(tests[0].is_passed_by("passed"));
    EXPECT_FALSE(tests[0].is_passed_by(""));
  }
}

TEST(CodeTestsTest, TestsNestedTooDeepAreRefused) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_THROW(parse_code_tests(R"({"inputs": [)" + deep + R"(], "outputs": ["1"]})"), InputError);
  const std::string calls = R"({"fn_name": "f", "inputs": ["1"], "outputs": [")" + deep + "\"]}";
  EXPECT_THROW(parse_code_tests(calls), InputError);
}

TEST(CodeTestsTest, RowsWithoutTestsAreAnError) {
  for (const char* row :
       {"", "  ", "[]", "{}", R"({"inputs": ["1"], "outputs": []})", R"({"inputs": []})",
        R"({"inputs": [], "outputs": []})", R"({"assert_case": 3})", "[1]",
        R"({"fn_name": "f", "inputs": [3], "outputs": [3]})",
        R"({"fn_name": "f", "inputs": ["no json"], "outputs": [3]})"})
    EXPECT_THROW(parse_code_tests(row), InputError) << row;
}

}  // namespace
}  // namespace tlt::reward

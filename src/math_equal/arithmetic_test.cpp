// SPDX-License-Identifier: Apache-2.0
#include "math_equal/arithmetic.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/random.h"

namespace tlt::math_equal {
namespace {

std::string repeat(std::string_view piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

TEST(ArithmeticTest, ValuesAreExactWithPythonsPrecedence) {
  const struct {
    std::string_view text;
    struct {
      int64_t numerator;
      uint64_t denominator;
    } value;
  } kCases[] = {
      {"7", {7, 1}},
      {"0", {0, 1}},
      {"2+3*4", {14, 1}},
      {"8-4-2", {2, 1}},
      {"24/4/2", {3, 1}},
      {"2*3/4", {3, 2}},
      {"8-(4/2)", {6, 1}},
      {"(7+3)*6", {60, 1}},
      {"-2*3", {-6, 1}},
      {"2*-3", {-6, 1}},
      {"2--3", {5, 1}},
      {"+-+-2", {2, 1}},
      {"-(2+3)*2", {-10, 1}},
      {"1/3+1/6", {1, 2}},
      {"1/3*3", {1, 1}},
      {"8/(3-8/3)", {24, 1}},  // not 23.99…
      {"3/-6", {-1, 2}},
      {"0/5", {0, 1}},
      {" 1 +\t( 2 ) ", {3, 1}},
      {"9223372036854775807", {INT64_MAX, 1}},
      {"-9223372036854775807", {-INT64_MAX, 1}},
      {"9223372036854775807/9223372036854775807", {1, 1}},
  };
  for (const auto& [text, value] : kCases) {
    const auto expression = try_evaluate(text);
    ASSERT_TRUE(expression) << text;
    EXPECT_TRUE(expression->value == Rational(value.numerator, value.denominator)) << text;
  }
}

TEST(ArithmeticTest, OtherTextHasNoValue) {
  for (const std::string_view text :
       {"",       " ",       "+",      "1+",  "*2",  "()",  "(1",   "1)",  ")(", "1 2",   "2(3)",
        "(2)(3)", "9**9**9", "7//2",   "1.5", ".5",  "1e3", "0x10", "07",  "00", "1_000", "1,2",
        "a",      "1+a",     "abs(1)", "x=1", "1;2", "１",  "2×3",  "-",   "--", "1-",    "(-)",
        "1\n+2",  "3!",      "5%2",    "2^3", "~1",  "1=1", "[1]",  "\xff"}) {
    EXPECT_FALSE(try_evaluate(text)) << text;
  }
  EXPECT_FALSE(try_evaluate(std::string_view("1\0", 2)));
  EXPECT_FALSE(try_evaluate(std::string_view("1\0+1", 4)));
}

TEST(ArithmeticTest, DivisionByZeroHasNoValue) {
  for (const std::string_view text : {"1/0", "0/0", "1/(2-2)", "1/(1/2-2/4)", "5-1/-0"}) {
    EXPECT_FALSE(try_evaluate(text)) << text;
  }
}

TEST(ArithmeticTest, OverflowHasNoValue) {
  for (const std::string_view text :
       {"9223372036854775808", "99999999999999999999999999", "9223372036854775807+1",
        "-9223372036854775807-1", "-9223372036854775807-2", "3037000500*3037000500",
        "4611686018427387904*2/2", "1/9223372036854775807/2", "1/4294967296/4294967296"}) {
    EXPECT_FALSE(try_evaluate(text)) << text;
  }
  EXPECT_FALSE(try_evaluate("9" + repeat("*9", 100)));
}

TEST(ArithmeticTest, DepthAndSizeAreBounded) {
  const auto nested = [](int depth) { return repeat("(", depth) + "1" + repeat(")", depth); };
  EXPECT_TRUE(try_evaluate(nested(kMaxExpressionDepth)));
  EXPECT_FALSE(try_evaluate(nested(kMaxExpressionDepth + 1)));
  EXPECT_FALSE(try_evaluate(nested(100'000)));
  EXPECT_FALSE(try_evaluate(repeat("(", 4000)));
  EXPECT_FALSE(try_evaluate(repeat("-", 4096)));
  EXPECT_TRUE(try_evaluate(repeat("-", 4095) + "1"));
  EXPECT_FALSE(try_evaluate(repeat("-", 4096) + "1"));
  EXPECT_TRUE(try_evaluate(repeat("(1)+", 1000) + "1"));  // many, but not nested
}

TEST(ArithmeticTest, NumbersAreListedInOrder) {
  EXPECT_EQ(try_evaluate("8-(4/2)*10")->numbers, (std::vector<int64_t>{8, 4, 2, 10}));
  EXPECT_EQ(try_evaluate("-7")->numbers, (std::vector<int64_t>{7}));
}

// A random tree: its text, and its value as an unreduced fraction computed without the parser.
struct Tree {
  std::string text;
  std::optional<std::pair<int64_t, int64_t>> value;
  int level;  // 0 sum, 1 product, 2 number
};

Tree random_tree(RandomStream& random, int leaves) {
  if (leaves == 1) {
    const auto number = static_cast<int64_t>(random.below(13));
    return {std::to_string(number), std::pair(number, int64_t{1}), 2};
  }
  const int left_leaves = 1 + static_cast<int>(random.below(leaves - 1));
  Tree left = random_tree(random, left_leaves), right = random_tree(random, leaves - left_leaves);
  const char operation = "+-*/"[random.below(4)];
  const int level = operation == '*' || operation == '/' ? 1 : 0;
  if (left.level < level || random.below(4) == 0) left.text = "(" + left.text + ")";
  if (right.level <= level || random.below(4) == 0) right.text = "(" + right.text + ")";
  Tree tree{left.text + operation + right.text, std::nullopt, level};
  if (!left.value || !right.value) return tree;
  const auto [a, b] = *left.value;
  const auto [c, d] = *right.value;
  switch (operation) {
    case '+':
      tree.value = {a * d + c * b, b * d};
      break;
    case '-':
      tree.value = {a * d - c * b, b * d};
      break;
    case '*':
      tree.value = {a * c, b * d};
      break;
    default:
      if (c != 0) tree.value = {a * d, b * c};
  }
  return tree;
}

TEST(ArithmeticTest, RandomTreesMatchTheirOwnValue) {
  RandomStream random(17, {});
  int solved = 0;
  for (int round = 0; round < 20'000; ++round) {
    const Tree tree = random_tree(random, 1 + static_cast<int>(random.below(6)));
    const auto expression = try_evaluate(tree.text);
    ASSERT_EQ(expression.has_value(), tree.value.has_value()) << tree.text;
    if (!expression) continue;
    Rational value;
    fmpq_set_si(value, tree.value->first, 1);
    fmpq_div_fmpz(value, value, Rational(tree.value->second).numerator());
    ASSERT_TRUE(expression->value == value) << tree.text;
    ++solved;
  }
  EXPECT_GT(solved, 10'000);
}

TEST(ArithmeticTest, RandomTextNeverCrashes) {
  RandomStream random(18, {});
  constexpr std::string_view kAlphabet = "0123456789+-*/() .,x\n";
  for (int round = 0; round < 50'000; ++round) {
    std::string text(random.below(24), ' ');
    for (char& c : text) {
      c = random.below(50) == 0 ? static_cast<char>(random.below(256))
                                : kAlphabet[random.below(kAlphabet.size())];
    }
    const auto expression = try_evaluate(text);
    ASSERT_TRUE(!expression || !expression->numbers.empty()) << text;
  }
}

}  // namespace
}  // namespace tlt::math_equal

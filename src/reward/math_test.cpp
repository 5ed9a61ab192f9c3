// SPDX-License-Identifier: Apache-2.0
#include "reward/math.h"

#include <gtest/gtest.h>

#include <string>

namespace tlt::reward {
namespace {

struct AnswerCase {
  std::string_view response, strict, flexible;  // empty: no answer
};

TEST(MathAnswerTest, AnswerIsInTheLastBoxOrAtTheEnd) {
  const AnswerCase kCases[] = {
      {"so \\boxed{42}.", "42", "42"},
      {"\\boxed{1} no, \\boxed{2}", "2", "2"},
      {"\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", "\\frac{1}{2}"},
      {"\\boxed{\\{1,2\\}}", "\\{1,2\\}", "\\{1,2\\}"},
      {"\\boxed{\\boxed{5}}", "\\boxed{5}", "\\boxed{5}"},
      {"\\fbox{7}", "7", "7"},
      {"a set {1 and \\boxed{3}", "3", "3"},
      {"\\boxed{4} and then \\boxed{5", "4", "4"},  // cut at the end
      {"\\boxed{}", "", ""},
      {"The answer is 7.", "", "7"},
      {"The answer is $\\frac{1}{2}$. Done", "", "\\frac{1}{2}"},
      {"The final answer is: $12$ apples", "", "12"},
      {"**Answer:** 3/4", "", "3/4"},
      {"answer is 1. Then the answer is 2.\nBye", "", "2"},
      {"we get $x=1$ and $x=2$", "", "x=2"},
      {"we get \\[x^2\\]", "", "x^2"},
      {"we get $$x^2$$", "", "x^2"},
      {"it costs \\$5 and \\$7", "", "7"},
      {"so 12 of 1,234.", "", "1,234"},
      {"so -3/4 it is", "", "-3/4"},
      {"so 40%", "", "40%"},
      {"no idea", "", ""},
      {"", "", ""},
  };
  for (const auto& [response, strict, flexible] : kCases) {
    EXPECT_EQ(try_math_answer(response, MathMethod::kStrict).value_or(""), strict) << response;
    EXPECT_EQ(try_math_answer(response, MathMethod::kFlexible).value_or(""), flexible) << response;
  }
}

double score(MathMethod method, std::string_view response, std::string_view truth) {
  return MathReward(method).score({.response = response, .ground_truth = truth}).score;
}

TEST(MathRewardTest, ScoresTheAnswer) {
  EXPECT_EQ(score(MathMethod::kStrict, "hence \\boxed{\\frac{2}{4}}", "\\frac{1}{2}"), 1);
  EXPECT_EQ(score(MathMethod::kStrict, "hence \\boxed{\\frac{2}{4}}", "0.51"), 0);
  EXPECT_EQ(score(MathMethod::kStrict, "hence $0.5$", "\\frac{1}{2}"), 0);
  EXPECT_EQ(score(MathMethod::kFlexible, "hence $0.5$", "\\frac{1}{2}"), 1);
  EXPECT_EQ(score(MathMethod::kFlexible, "The answer is 1/2.", "We get \\boxed{\\frac12}."), 1);
  EXPECT_EQ(score(MathMethod::kFlexible, "", "1"), 0);
  EXPECT_EQ(score(MathMethod::kFlexible, "\\boxed{}", "1"), 0);
}

// A response of many open boxes is read once, not once per box.
TEST(MathRewardTest, LongResponsesAreReadOnce) {
  std::string open;
  for (int i = 0; i < 200'000; ++i) open += "\\boxed{$";
  EXPECT_EQ(score(MathMethod::kFlexible, open, "1"), 0);
  EXPECT_EQ(score(MathMethod::kFlexible, open + "1}", "1"), 1);
}

TEST(MathRewardTest, EmptyGroundTruthIsAnError) {
  const MathReward reward(MathMethod::kStrict);
  EXPECT_NO_THROW(reward.check_row({.ground_truth = "x"}));
  EXPECT_THROW(reward.check_row({.ground_truth = " "}), InputError);
  EXPECT_THROW(reward.check_row({.ground_truth = "\\boxed{}"}), InputError);
}

}  // namespace
}  // namespace tlt::reward

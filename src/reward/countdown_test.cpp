// SPDX-License-Identifier: Apache-2.0
#include "reward/countdown.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/random.h"

namespace tlt::reward {
namespace {

double trace_score(std::string_view text, std::string_view ground_truth, bool truncated = false) {
  return CountdownTraceReward()
      .score({.raw_response = text, .ground_truth = ground_truth, .truncated = truncated})
      .score;
}

std::string answer(std::string_view expression) {
  return "1:2>3</think><answer>" + std::string(expression) + "</answer><eos>";
}

TEST(CountdownTraceTest, DemonstrationsOfTheTask) {
  const std::string solved =
      "7,6,3:60>7*6=42\n42,3:60>42+3=45\n7,6,3:60>7+3=10\n"
      "10,6:60>10*6=60</think><answer>(7+3)*6</answer><eos>";
  const std::string gave_up =
      "2,4,8:24>4/2=2\n2,8:24>8*2=16\n2,8:24>8-2=6</think><answer>8-(4/2)</answer><eos>";
  EXPECT_EQ(trace_score(solved, "7,6,3:60"), 1);
  EXPECT_EQ(trace_score(gave_up, "2,4,8:24"), 0);
  EXPECT_EQ(trace_score(gave_up, "2,4,8:6"), 1);
}

TEST(CountdownTraceTest, ExpressionMustSolveTheProblem) {
  const struct {
    std::string expression;
    double score;
  } kCases[] = {
      {"3*(6-4)*4", 0},  // 4 twice
      {"4*6*(3-2)", 0},  // 2 is not a number of the problem
      {"4*6", 0},        // 3 is missing
      {"6*4*3/3", 0},    // 3 twice
      {"(6-4)*3", 0},    // 6
      {"6*(4-3)", 0},    // 6
      {"3*4+6*2", 0},    // 2 again
      {"6+3*4+6", 0},    // 6 twice
      {"(3+6)*4", 0},    // 36
      {"3*6+4", 0},      // 22
      {"4*(6/3)", 0},    // 8
      {"3*4*(6)", 0},    // 72
      {"6*(3+4)", 0},    // 42
      {"6*4*3", 0},      // 72
      {"24", 0},         // not the numbers
      {"", 0},          {"(3", 0},
  };
  for (const auto& [expression, score] : kCases) {
    EXPECT_EQ(trace_score(answer(expression), "3,4,6:24"), score) << expression;
  }
  EXPECT_EQ(trace_score(answer("3+4+6"), "3,4,6:13"), 1);
  EXPECT_EQ(trace_score(answer("6+4+3"), "3,4,6:13"), 1);
  EXPECT_EQ(trace_score(answer("((6)+(4+3))"), "3,4,6:13"), 1);
  EXPECT_EQ(trace_score(answer("6--4+3"), "3,4,6:13"), 1);  // signs are + and -
  EXPECT_EQ(trace_score(answer("8/(3-8/3)"), "8,3,8,3:24"), 1);
  EXPECT_EQ(trace_score(answer("3+4 +6"), "3,4,6:13"), 0);  // no blanks
  EXPECT_EQ(trace_score(answer("3+4+6.0"), "3,4,6:13"), 0);
  EXPECT_EQ(trace_score(answer("3+4+06"), "3,4,6:13"), 0);
}

TEST(CountdownTraceTest, HostileExpressionsAreZeroAndFast) {
  const std::string deep(100'000, '(');
  for (const std::string& expression :
       {std::string("9**9**9"), std::string("9//9"), deep, deep + "9" + std::string(100'000, ')'),
        std::string("9/(9-9)"), std::string("99999999999999999999*9"), std::string(100'000, '9'),
        std::string("__import__"), std::string("9;9"), std::string("\xff\xfe")}) {
    EXPECT_EQ(trace_score(answer(expression), "9,9,9:9"), 0) << expression.substr(0, 40);
  }
}

TEST(CountdownTraceTest, ResponseMustHaveTheTasksEnd) {
  const std::string_view problem = "3,4,6:13";
  EXPECT_EQ(trace_score("</think><answer>3+4+6</answer><eos>", problem), 1);
  EXPECT_EQ(trace_score("</think><answer>3+4+6</answer>", problem), 1);  // <eos> may be stripped
  EXPECT_EQ(trace_score("</think><answer>3+4+6</answer>", problem, /*truncated=*/true), 0);
  for (const std::string_view text :
       {"", "3+4+6", "<answer>3+4+6</answer><eos>", "</think>\n<answer>3+4+6</answer><eos>",
        "</think><answer>3+4+6</answer><eos>x", "</think><answer>3+4+6</answer>\n",
        "</think><answer>3+4+6</answer><eos><eos>", "</think><answer>3+4+6",
        "<answer></think><answer>3+4+6</answer><eos>",
        "</think><answer>3+4+6</answer></think><answer>3+4+6</answer><eos>",
        "</think><answer>3+4+6</answer></answer><eos>", "</answer><eos>", "</answer>",
        "<answer></answer>"}) {
    EXPECT_EQ(trace_score(text, problem), 0) << text;
  }
}

TEST(CountdownTraceTest, MissingRawResponseIsAnErrorNotZero) {
  EXPECT_THROW(CountdownTraceReward().score({.response = "3+4+6", .ground_truth = "3,4,6:13"}),
               Error);
}

double countdown_score(std::string_view response, std::string_view ground_truth = "3,4,6:13") {
  return CountdownReward().score({.response = response, .ground_truth = ground_truth}).score;
}

TEST(CountdownTest, ScoresMatchTinyZero) {
  const struct {
    std::string_view response;
    double score;
  } kCases[] = {
      {"<answer>3+4+6</answer>", 1},
      {"<think>hm</think> <answer> 3 + 4 + 6 </answer>", 1},
      {"<think>\nhm\n</think>\n<answer>(6 + 3) + 4</answer>", 1},
      {"<answer>3+4+6</answer> done", 1},
      {"<answer>1</answer> <answer>3+4+6</answer>", 1},  // the last one
      {"<answer>3+4+6</answer> <answer>1</answer>", 0.1},
      {"<answer>3+4+6</answer>\n", 0},  // not in the last line
      {"<answer>3+4\n+6</answer>", 0},
      {"<answer>3*4+6</answer>", 0.1},  // 18
      {"<answer>3+4</answer>", 0.1},
      {"<answer>3+4+6+1-1</answer>", 0.1},
      {"<answer>3+4+6=13</answer>", 0.1},
      {"<answer></answer>", 0.1},
      {"<answer>9**9**9</answer>", 0.1},
      {"<answer>3+4+6/0</answer>", 0.1},
      {"<answer><answer>3+4+6</answer>", 0.1},  // as the regex matches
      {"<answer>3+4+6", 0},
      {"3+4+6</answer>", 0},
      {"</answer>3+4+6<answer>", 0},
      {"13", 0},
      {"", 0},
  };
  for (const auto& [response, score] : kCases)
    EXPECT_EQ(countdown_score(response), score) << response;
}

TEST(CountdownTest, ManyAnswersTakeLinearTime) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "<answer>1</answer>";
  EXPECT_EQ(countdown_score(text), 0.1);
  std::string open;
  for (int i = 0; i < 100'000; ++i) open += "<answer>";
  EXPECT_EQ(countdown_score(open), 0);
}

TEST(CountdownProblemTest, IsReadFromTextJsonOrExtraInfo) {
  const nlohmann::ordered_json info = {{"numbers", {6, 3, 4}}, {"target", 24}, {"split", "train"}};
  for (const RewardInput& row :
       {RewardInput{.ground_truth = "6,4,3:24"}, RewardInput{.ground_truth = " 3,4,6:24\n"},
        RewardInput{.ground_truth = R"({"target": 24, "numbers": [4, 3, 6]})"},
        RewardInput{.ground_truth = "", .extra_info = &info},
        RewardInput{.ground_truth = "3,4,6:24", .extra_info = nullptr}}) {
    const CountdownTask problem = countdown_task(row);
    EXPECT_EQ(problem.numbers, (std::vector<int64_t>{3, 4, 6}));
    EXPECT_EQ(problem.target, 24);
  }
}

TEST(CountdownProblemTest, RowWithoutProblemIsAnError) {
  const nlohmann::ordered_json info = {{"target", 24}};
  EXPECT_THROW(CountdownReward().check_row({.extra_info = &info}), InputError);
  for (const std::string_view text :
       {"", "3,4,6", ":24", "3,,4:24", "3,4,:24", "3,4:", "a,4:24", "3 4:24", "3,4,6:24<think>",
        "{", "{}", R"({"numbers": [], "target": 1})", R"({"numbers": [1.5], "target": 1})",
        R"({"numbers": [1], "target": "1"})", R"({"numbers": 1, "target": 1})", "[1]",
        "99999999999999999999:1"}) {
    EXPECT_THROW(CountdownTraceReward().check_row({.ground_truth = text}), InputError) << text;
  }
}

TEST(CountdownTest, RandomTextNeverCrashes) {
  RandomStream random(20, {});
  constexpr std::string_view kPieces[] = {"3",        "4",         "+",        "-",    "*",  "/",
                                          "(",        ")",         "6",        "=",    "\n", "\xc3",
                                          "<answer>", "</answer>", "</think>", "<eos>"};
  int rewarded = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = random.below(2) == 0 ? "</think><answer>" : "";
    for (uint64_t i = random.below(8); i > 0; --i)
      text += kPieces[random.below(random.below(2) == 0 ? 3 : 16)];
    if (random.below(2) == 0) text += "</answer><eos>";
    const double trace = trace_score(text, "3,4:7"), plain = countdown_score(text, "3,4:7");
    ASSERT_TRUE(trace == 0 || trace == 1) << text;
    ASSERT_TRUE(plain == 0 || plain == 0.1 || plain == 1) << text;
    rewarded += trace == 1;
  }
  EXPECT_GT(rewarded, 0);
}

}  // namespace
}  // namespace tlt::reward

// SPDX-License-Identifier: Apache-2.0
#include "reward/gsm8k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/random.h"

namespace tlt::reward {
namespace {

double score(Gsm8kMethod method, std::string_view response, std::string_view ground_truth) {
  return Gsm8kReward(method).score({.response = response, .ground_truth = ground_truth}).score;
}

struct Case {
  std::string_view response, ground_truth;
  double strict, flexible;
};

TEST(Gsm8kTest, ScoresMatchVerl) {
  const Case kCases[] = {
      {"#### 42", "42", 1, 1},
      {"so it is 42", "42", 0, 1},
      {"#### 42\n", "42", 1, 1},
      {"#### 41 no, #### 42", "42", 1, 1},
      {"#### 42 no, #### 41", "42", 0, 0},
      {"#### 42 and 7 more", "42", 1, 0},
      {"#### 42 ####", "42", 1, 1},
      {"#### 42 #### none", "42", 1, 1},
      {"##### 42", "42", 1, 1},
      {"####42", "42", 0, 1},
      {"####  42", "42", 0, 1},
      {"####\n42", "42", 0, 1},
      {"### 42", "42", 0, 1},
      {"#### -42", "-42", 1, 1},
      {"#### - 42", "42", 0, 1},
      {"#### --42", "-42", 0, 1},
      {"#### 1,234", "1234", 1, 0},  // only strict removes commas
      {"#### 1,234", "1,234", 0, 1},
      {"#### $12.00", "12.00", 0, 1},
      {"it costs $12.00", "12.00", 0, 1},
      {"#### 12.00", "12", 0, 0},  // as a string, not by value
      {"#### 42.", "42", 0, 0},
      {"It is 42.", "42", 0, 0},
      {"It is 42 .", "42", 0, 1},  // a single point is not a number
      {"42 . . .", "42", 0, 1},
      {"42 ,", "42", 0, 0},  // a single comma is
      {"42 -.", "42", 0, 0},
      {"3-42", "-42", 0, 1},
      {"...", "", 0, 0},
      {"", "42", 0, 0},
      {"#### ", "42", 0, 0},
      {"no number", "", 0, 0},
      {"#### ４２", "42", 0, 0},
  };
  for (const auto& [response, ground_truth, strict, flexible] : kCases) {
    EXPECT_EQ(score(Gsm8kMethod::kStrict, response, ground_truth), strict) << response;
    EXPECT_EQ(score(Gsm8kMethod::kFlexible, response, ground_truth), flexible) << response;
  }
}

TEST(Gsm8kTest, OnlyTheLast300CharactersCount) {
  const auto padded = [](int characters, std::string_view character) {
    std::string text = "#### 42";
    for (int i = 0; i < characters; ++i) text += character;
    return text;
  };
  for (const std::string_view character : {" ", "é", "語", "🦆"}) {
    EXPECT_EQ(score(Gsm8kMethod::kStrict, padded(293, character), "42"), 1) << character;
    EXPECT_EQ(score(Gsm8kMethod::kStrict, padded(294, character), "42"), 0) << character;
    EXPECT_EQ(score(Gsm8kMethod::kFlexible, padded(298, character), "42"), 1) << character;
    EXPECT_EQ(score(Gsm8kMethod::kFlexible, padded(299, character), "2"), 1) << character;
    EXPECT_EQ(score(Gsm8kMethod::kFlexible, padded(300, character), "42"), 0) << character;
  }
}

TEST(Gsm8kTest, WholeAnswerIsAGroundTruth) {
  const std::string_view answer = "She makes 9 * 2 = $<<9*2=18>>18.\n#### 1,018";
  EXPECT_EQ(score(Gsm8kMethod::kStrict, "#### 1018", answer), 1);
  EXPECT_EQ(score(Gsm8kMethod::kStrict, "#### 18", answer), 0);
  EXPECT_EQ(score(Gsm8kMethod::kStrict, answer, answer), 1);
}

TEST(Gsm8kTest, RowWithoutNumberIsAnError) {
  const Gsm8kReward reward(Gsm8kMethod::kStrict);
  EXPECT_NO_THROW(reward.check_row({.ground_truth = "42"}));
  EXPECT_NO_THROW(reward.check_row({.ground_truth = "so\n#### 42"}));
  EXPECT_THROW(reward.check_row({.ground_truth = ""}), InputError);
  EXPECT_THROW(reward.check_row({.ground_truth = "#### none"}), InputError);
  EXPECT_NO_THROW(reward.check_row({.ground_truth = "-0.5"}));
  EXPECT_NO_THROW(reward.check_row({.ground_truth = "so\n#### 1,042"}));
  for (const char* never : {"none", "1,042", " 42", "42 apples", "-", "4/2"})
    EXPECT_THROW(reward.check_row({.ground_truth = never}), InputError) << never;
  EXPECT_NO_THROW(Gsm8kReward(Gsm8kMethod::kFlexible).check_row({.ground_truth = "1,042"}));
}

// verl's extraction as implemented there: of all matches of `#### (-?[0-9.,]+)` or `-?[0-9.,]+`
// from the left, the last one.
std::optional<std::string> slow_answer(Gsm8kMethod method, const std::string& text) {
  const bool strict = method == Gsm8kMethod::kStrict;
  const std::string mark = strict ? "#### " : "";
  std::optional<std::string> answer;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    std::string found;
    if (text.compare(at, mark.size(), mark) == 0) {
      end += mark.size();
      if (end < text.size() && text[end] == '-') found += text[end++];
      const size_t digits = end;
      while (end < text.size() &&
             std::string("0123456789.,").find(text[end]) != std::string::npos) {
        if (!strict || text[end] != ',') found += text[end];
        ++end;
      }
      if (end == digits) end = at;  // no match
    }
    if (end > at && (strict || found != ".")) answer = found;
    at = std::max(end, at + 1);
  }
  return answer;
}

TEST(Gsm8kTest, RandomTextMatchesAllMatchesFromTheLeft) {
  RandomStream random(19, {});
  constexpr std::string_view kPieces[] = {"#", "#### ", " ", "1", "23", ",",
                                          ".", "-",     "$", "x", "\n"};
  for (int round = 0; round < 3'000; ++round) {
    std::string text;
    for (uint64_t i = random.below(16); i > 0; --i) text += kPieces[random.below(11)];
    for (const auto method : {Gsm8kMethod::kStrict, Gsm8kMethod::kFlexible}) {
      const auto answer = slow_answer(method, text);
      EXPECT_EQ(score(method, text, answer.value_or("1")), answer ? 1 : 0) << text;
      EXPECT_EQ(score(method, text, answer.value_or("") + "0"), 0) << text;
    }
  }
}

}  // namespace
}  // namespace tlt::reward

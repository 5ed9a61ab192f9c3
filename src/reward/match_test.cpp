// SPDX-License-Identifier: Apache-2.0
#include "reward/match.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace tlt::reward {
namespace {

double exact(std::string_view response, std::string_view ground_truth) {
  return ExactReward().score({.response = response, .ground_truth = ground_truth}).score;
}

double match(const std::string& pattern, std::string_view response,
             std::string_view ground_truth = "") {
  return RegexReward(pattern).score({.response = response, .ground_truth = ground_truth}).score;
}

TEST(ExactRewardTest, WhiteSpaceAtTheEndsDoesNotCount) {
  EXPECT_EQ(exact("yes", "yes"), 1);
  EXPECT_EQ(exact("\n yes\t", "yes "), 1);
  EXPECT_EQ(exact("yes no", "yes  no"), 0);
  EXPECT_EQ(exact("Yes", "yes"), 0);
  EXPECT_EQ(exact("", "yes"), 0);
  EXPECT_EQ(exact(" \n", ""), 1);
  EXPECT_THROW(ExactReward().check_row({.ground_truth = " "}), InputError);
}

TEST(RegexRewardTest, MatchWithoutGroupScoresOne) {
  EXPECT_EQ(match("colou?r", "the color"), 1);
  EXPECT_EQ(match("colou?r", "the colr"), 0);
  EXPECT_EQ(match(R"((?s)\A<think>.*</think>\s*\S)", "<think>a\nb</think>\n7"), 1);
  EXPECT_EQ(match(R"((?s)\A<think>.*</think>\s*\S)", "x<think>a\nb</think>\n7"), 0);
  EXPECT_EQ(match(R"(^\p{Lu}\w+$)", "Ünïcode"), 1);
  EXPECT_NO_THROW(RegexReward("a").check_row({}));
}

TEST(RegexRewardTest, FirstGroupMustEqualTheGroundTruth) {
  EXPECT_EQ(match(R"(answer: (\d+))", "answer: 42", "42"), 1);
  EXPECT_EQ(match(R"(answer: (\d+))", "answer: 41", "42"), 0);
  EXPECT_EQ(match(R"(answer: (.*))", "answer: 42 ", " 42"), 1);
  EXPECT_EQ(match(R"(answer: (\d+))", "answer: 1 answer: 2", "1"), 1);        // the first match
  EXPECT_EQ(match(R"((?s).*answer: (\d+))", "answer: 1 answer: 2", "2"), 1);  // the last
  EXPECT_EQ(match("(a)|b", "b", ""), 0);
  EXPECT_THROW(RegexReward("(a)").check_row({}), InputError);
}

TEST(FormatRewardTest, ScoresTheFormatOnly) {
  const auto score = [](const FormatReward& reward, std::string_view response) {
    return reward.score({.response = response, .ground_truth = "42"}).score;
  };
  const FormatReward thinks(RewardOptions().format);
  EXPECT_EQ(score(thinks, "<think>a\nb</think>\n7"), 1);
  EXPECT_EQ(score(thinks, "<think></think>"), 1);
  EXPECT_EQ(score(thinks, "<think>a</think>b</think>"), 1);
  EXPECT_EQ(score(thinks, "x<think>a</think>7"), 0);  // not at the beginning
  EXPECT_EQ(score(thinks, "x\n<think>a</think>7"), 0);
  EXPECT_EQ(score(thinks, "<think>a<think>b</think>7"), 0);
  EXPECT_EQ(score(thinks, "<think>a 42"), 0);  // never ends
  EXPECT_EQ(score(thinks, ""), 0);
  const FormatReward tags(R"((?s)\A<think>\n(.*?)\n</think>\n<answer>\n(.*?)\n</answer>\z)");
  EXPECT_EQ(score(tags, "<think>\na\n</think>\n<answer>\n7\n</answer>"), 1);  // no effect
  EXPECT_EQ(score(tags, "<think>\na\n</think>\n<answer>\n7\n</answer> "), 0);
  EXPECT_NO_THROW(tags.check_row({}));
  EXPECT_THROW(score(FormatReward("(?:a+)+$"), std::string(5'000, 'a') + "b"), Error);
  EXPECT_THROW(FormatReward("a(b"), InputError);
  const std::string thought = "<think>" + std::string(200'000, 'a') + "\n";
  EXPECT_EQ(score(thinks, thought + "</think>"), 1);  // long, but not endless
  EXPECT_EQ(score(thinks, thought), 0);
}

TEST(RegexRewardTest, InvalidPatternIsAnInputError) {
  try {
    RegexReward("a(b");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("at byte 3"), std::string::npos) << error.what();
  }
  EXPECT_THROW(RegexReward("\xff"), InputError);
}

TEST(RegexRewardTest, EndlessBacktrackingFailsTheSample) {
  EXPECT_THROW(match("(?:a+)+$", std::string(5'000, 'a') + "b"), Error);
  EXPECT_THROW(match(R"((?:\w|\d)*\z)", std::string(5'000, '7') + "!"), Error);
  EXPECT_EQ(match("(?s).*#### [0-9]+", std::string(1'000'000, 'a') + "#### 7"),
            1);  // long, but not endless
}

TEST(RegexRewardTest, InvalidUtf8IsText) {
  EXPECT_EQ(match("a.c", "\xff\xc3 abc \x80"), 1);
  RandomStream random(21, {});
  const RegexReward reward(R"((?i)(\w+)\s*=\s*(?:\d+|\p{L})*)");
  for (int round = 0; round < 5'000; ++round) {
    std::string text(random.below(40), ' ');
    for (char& c : text) c = static_cast<char>(random.below(256));
    const double score = reward.score({.response = text, .ground_truth = "a"}).score;
    ASSERT_TRUE(score == 0 || score == 1);
  }
}

}  // namespace
}  // namespace tlt::reward

// SPDX-License-Identifier: Apache-2.0
#include "reward/shaping.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace tlt::reward {
namespace {

double length(int64_t tokens) {
  return LengthReward(/*buffer=*/100)
      .score({.response_tokens = tokens, .max_response_tokens = 1000})
      .score;
}

TEST(LengthRewardTest, PenaltyGrowsOverTheLastTokens) {
  EXPECT_EQ(length(0), 0);
  EXPECT_EQ(length(900), 0);
  EXPECT_NEAR(length(950), -0.5, 1e-12);
  EXPECT_NEAR(length(1000), -1, 1e-12);
}

TEST(LengthRewardTest, BufferLongerThanAResponseIsAnError) {
  EXPECT_NO_THROW(LengthReward(10).check_row({.max_response_tokens = 10}));
  EXPECT_THROW(LengthReward(11).check_row({.max_response_tokens = 10}), InputError);
}

double repetition(std::string_view text, int64_t words = 2) {
  return RepetitionReward(words).score({.response = text}).score;
}

TEST(RepetitionRewardTest, ShareOfRepeatedNgrams) {
  EXPECT_EQ(repetition(""), 0);
  EXPECT_EQ(repetition("one"), 0);
  EXPECT_EQ(repetition("one two three four"), 0);
  // one two, two one, one two, two one, one two: two of five.
  EXPECT_NEAR(repetition("one two one TWO\none two"), -3.0 / 5, 1e-12);
  EXPECT_NEAR(repetition("a a a a", 1), -3.0 / 4, 1e-12);
  // The same letters, other words.
  EXPECT_EQ(repetition("ab c a bc"), 0);
}

}  // namespace
}  // namespace tlt::reward

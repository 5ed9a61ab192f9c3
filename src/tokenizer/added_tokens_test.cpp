// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"

namespace tlt::tokenizer {
namespace {

// "text|<7>|…": tokens by id, other text unchanged.
std::string cut(const std::vector<AddedToken>& tokens, std::string_view text) {
  std::vector<AddedTokens::Piece> pieces;
  AddedTokens(tokens).split(text, pieces);
  std::string joined;
  for (const auto& piece : pieces) {
    joined += joined.empty() ? "" : "|";
    joined += piece.id == AddedTokens::kText ? std::string(piece.text)
                                             : "<" + std::to_string(piece.id) + ">";
  }
  return joined;
}

TEST(AddedTokensTest, LeftmostThenLongestWins) {
  const std::vector<AddedToken> tokens = {
      {.text = "long", .id = 1}, {.text = "longer", .id = 2}, {.text = "ong", .id = 3}};
  EXPECT_EQ(cut(tokens, "a longer long ong"), "a |<2>| |<1>| |<3>");
  EXPECT_EQ(cut(tokens, "longelonger"), "<1>|e|<2>");
  EXPECT_EQ(cut(tokens, ""), "");
}

TEST(AddedTokensTest, StripIncludesWhiteSpace) {
  const std::vector<AddedToken> tokens = {{.text = "L", .id = 1, .strips_left = true},
                                          {.text = "R", .id = 2, .strips_right = true}};
  EXPECT_EQ(cut(tokens, "a \u3000\nL R \tb"), "a|<1>| |<2>|b");
  EXPECT_EQ(cut(tokens, "R L"), "<2>|<1>");
  EXPECT_EQ(cut(tokens, "  L"), "<1>");
}

TEST(AddedTokensTest, SingleWordIsNotPartOfAWord) {
  const std::vector<AddedToken> tokens = {{.text = "word", .id = 1, .is_single_word = true}};
  EXPECT_EQ(cut(tokens, "word, word."), "<1>|, |<1>|.");
  for (const char* text : {"words", "_word", "éword", "word\u0301", "1word", "word\u200D",
                           "wordword", "\U00031963word"}) {
    EXPECT_EQ(cut(tokens, text), text);
  }
}

// Issue 23: from each letter to the end of the token, or of the spaces.
TEST(AddedTokensTest, ManyStepsForEachByteAreRefused) {
  const std::vector<AddedToken> long_token = {{.text = std::string(2000, 'a') + "b", .id = 1}};
  EXPECT_THROW(cut(long_token, std::string(100'000, 'a')), InputError);
  EXPECT_EQ(cut(long_token, "aaa " + std::string(2000, 'a') + "b"), "aaa |<1>");
  const std::vector<AddedToken> space = {{.text = " ", .id = 2, .strips_right = true}};
  EXPECT_THROW(cut(space, std::string(100'000, ' ')), InputError);
  EXPECT_EQ(cut(space, "a b"), "a|<2>|b");
}

// Random texts of two letters, compared with a search for every token at every position.
TEST(AddedTokensTest, RandomTextsMatchReference) {
  RandomStream random(2, {});
  const auto letters = [&](uint64_t count) {
    std::string text;
    while (text.size() < count) text.push_back("ab"[random.below(2)]);
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<AddedToken> tokens;
    for (int32_t id = 0; id < 4; ++id)
      tokens.push_back({.text = letters(1 + random.below(4)), .id = id});
    const std::string text = letters(random.below(20));
    std::string want, plain;
    for (size_t at = 0; at < text.size();) {
      const AddedToken* best = nullptr;
      for (const auto& token : tokens) {
        const bool is_here = text.compare(at, token.text.size(), token.text) == 0;
        if (is_here && (!best || token.text.size() > best->text.size())) best = &token;
      }
      if (!best) {
        plain.push_back(text[at++]);
        continue;
      }
      if (!plain.empty()) want += (want.empty() ? "" : "|") + std::exchange(plain, {});
      want += (want.empty() ? "<" : "|<") + std::to_string(best->id) + ">";
      at += best->text.size();
    }
    if (!plain.empty()) want += (want.empty() ? "" : "|") + plain;
    ASSERT_EQ(cut(tokens, text), want) << text;
  }
}

}  // namespace
}  // namespace tlt::tokenizer

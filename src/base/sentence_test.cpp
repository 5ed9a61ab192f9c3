// SPDX-License-Identifier: Apache-2.0
#include "base/sentence.h"

#include <gtest/gtest.h>

namespace tlt {
namespace {

TEST(SentenceTest, ShortStringIsUnchanged) {
  EXPECT_EQ(one_sentence("a.json: naïve; save it again"), "a.json: naïve; save it again");
  EXPECT_EQ(one_sentence(""), "");
}

TEST(SentenceTest, ControlCharactersBecomeBlanks) {
  EXPECT_EQ(one_sentence(std::string_view("a\nb\tc\0d\x1b[31m\x7f", 13)), "a b c d [31m ");
}

TEST(SentenceTest, MiddleOfALongStringIsLeftOut) {
  const std::string text = "token \"" + std::string(5000, 'x') + "\" is unknown; mend the file";
  const std::string line = one_sentence(text);
  EXPECT_LE(line.size(), kMaxSentenceBytes);
  EXPECT_TRUE(line.starts_with("token \"xxx"));
  EXPECT_TRUE(line.ends_with("xxx\" is unknown; mend the file"));
  EXPECT_NE(line.find("x … x"), line.npos);
  EXPECT_EQ(one_sentence(std::string(kMaxSentenceBytes, 'y')), std::string(kMaxSentenceBytes, 'y'));
}

TEST(SentenceTest, NoCharacterIsCut) {
  for (size_t shift = 0; shift < 4; ++shift) {
    std::string text(shift, 'a');
    for (int i = 0; i < 500; ++i) text += "\xe2\x82\xac";
    for (const std::string line = one_sentence(text); const char byte : line.substr(shift))
      ASSERT_NE(byte, 'a');
    std::string rest = one_sentence(text).substr(shift);
    for (const std::string part : {"\xe2\x82\xac", " … "})
      for (size_t at = 0; (at = rest.find(part)) != rest.npos;) rest.erase(at, part.size());
    EXPECT_EQ(rest, "") << shift;
  }
}

}  // namespace
}  // namespace tlt

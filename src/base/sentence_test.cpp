// SPDX-License-Identifier: Apache-2.0
#include "base/sentence.h"

#include <gtest/gtest.h>

namespace tlt {
namespace {

TEST(SentenceTest, ShortStringIsUnchanged) {
  EXPECT_EQ(one_sentence("a.json: naïve; save it again"), "a.json: naïve; save it again");
  EXPECT_EQ(one_sentence(""), "");
}

// A column name could set the title of the terminal, clear it, or forge a line of the log.
TEST(SentenceTest, ControlCharactersAreEscaped) {
  EXPECT_EQ(one_sentence(std::string_view("a\nb\tc\0d\x1b[31m\x7f", 13)),
            "a\\u000ab\\u0009c\\u0000d\\u001b[31m\\u007f");
  EXPECT_EQ(one_sentence("\u009b2J \u202egnp.exe \u2066\u200f\u061c \u2028"),
            "\\u009b2J \\u202egnp.exe \\u2066\\u200f\\u061c \\u2028");
  EXPECT_EQ(one_sentence("a\xff\xe2\x82z"), "a\\xff\\xe2\\x82z");
  EXPECT_EQ(one_sentence("naïve … 数学 🙂 \\ \u00a0"), "naïve … 数学 🙂 \\ \u00a0");
  EXPECT_EQ(printable_lines("a\n\tb\r\x1b[2J"), "a\n\tb\\u000d\\u001b[2J");
}

// "… (5000 bytes) …"
std::string gap_of(const std::string& text) {
  return " … (" + std::to_string(text.size()) + " bytes) … ";
}

TEST(SentenceTest, MiddleOfALongStringIsLeftOut) {
  const std::string text = "token \"" + std::string(5000, 'x') + "\" is unknown; mend the file";
  const std::string line = one_sentence(text);
  EXPECT_LE(line.size(), kMaxSentenceBytes);
  EXPECT_TRUE(line.starts_with("token \"xxx"));
  EXPECT_TRUE(line.ends_with("xxx\" is unknown; mend the file"));
  EXPECT_NE(line.find("x" + gap_of(text) + "x"), line.npos);
  EXPECT_EQ(one_sentence(line), line);
  EXPECT_EQ(one_sentence(std::string(kMaxSentenceBytes, 'y')), std::string(kMaxSentenceBytes, 'y'));
}

TEST(SentenceTest, EscapesCountForTheLength) {
  for (const size_t bytes : {200, 999, 1000, 1001, 100'000}) {
    const std::string text = std::string(bytes, '\x1b') + "end", line = one_sentence(text);
    EXPECT_LE(line.size(), kMaxSentenceBytes);
    EXPECT_NE(line.find(gap_of(text)), line.npos) << bytes;
    EXPECT_TRUE(line.ends_with("\\u001bend")) << bytes;
  }
  EXPECT_EQ(printable_lines(std::string(10'000, '\x1b')).size(), 60'000U);
  EXPECT_LE(printable_lines(std::string(10'000, '\n'), 500).size(), 500U);
}

TEST(SentenceTest, NoCharacterIsCut) {
  for (size_t shift = 0; shift < 4; ++shift) {
    std::string text(shift, 'a');
    for (int i = 0; i < 500; ++i) text += "\xe2\x82\xac";
    for (const std::string line = one_sentence(text); const char byte : line.substr(shift))
      ASSERT_NE(byte, 'a');
    std::string rest = one_sentence(text).substr(shift);
    for (const std::string& part : {std::string("\xe2\x82\xac"), gap_of(text)})
      for (size_t at = 0; (at = rest.find(part)) != rest.npos;) rest.erase(at, part.size());
    EXPECT_EQ(rest, "") << shift;
  }
}

}  // namespace
}  // namespace tlt

// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"

namespace tlt::tokenizer {
namespace {

using Matches = std::vector<std::string>;

Matches matches(Regex regex, std::string_view text) {
  Matches found;
  regex.for_each_match(
      text, [&](size_t begin, size_t end) { found.emplace_back(text.substr(begin, end - begin)); });
  return found;
}

TEST(RegexTest, MatchesFromLeftToRight) {
  EXPECT_EQ(matches(Regex(R"(\p{N}{1,3}|\p{L}+)"), "abc1234 é"), (Matches{"abc", "123", "4", "é"}));
  EXPECT_EQ(matches(Regex("x"), "abc"), Matches{});
  EXPECT_EQ(matches(Regex("x"), ""), Matches{});
}

TEST(RegexTest, EmptyMatchAdvancesByOneCharacter) {
  EXPECT_EQ(matches(Regex("x*"), "éxx日"), (Matches{"", "xx", ""}));
}

TEST(RegexTest, WhiteSpaceIsTheUnicodeProperty) {
  for (const char* space : {" ", "\t", "\v", "\f", "\r", "\n", "\u0085", "\u00A0", "\u1680",
                            "\u2003", "\u2028", "\u202F", "\u205F", "\u3000"}) {
    EXPECT_EQ(matches(Regex(R"(\s)"), space), Matches{space});
    EXPECT_EQ(matches(Regex(R"([\s])"), space), Matches{space});
    EXPECT_EQ(matches(Regex(R"(\S|[^\s]|[\S])"), space), Matches{});
  }
  for (const char* other : {"\u180E", "\u200B", "\uFEFF", "\x1C"}) {
    EXPECT_EQ(matches(Regex(R"(\s|[\s])"), other), Matches{}) << other;
    EXPECT_EQ(matches(Regex(R"(\S)"), other), Matches{other});
  }
}

TEST(RegexTest, LettersAndNumbersOfUnicode16Match) {
  for (const char* letter : {"\u1C89", "\uA7CB", "\U00031350", "\U0002EE5D", "\U00016100"}) {
    EXPECT_EQ(matches(Regex(R"(\p{L})"), letter), Matches{letter});
    EXPECT_EQ(matches(Regex(R"([\p{L}])"), letter), Matches{letter});
    EXPECT_EQ(matches(Regex(R"([^\p{L}]|\P{L})"), letter), Matches{});
  }
  EXPECT_EQ(matches(Regex(R"(\p{N}+)"), "1\U00011F50"), Matches{"1\U00011F50"});
}

TEST(RegexTest, CaseFoldingIsUnicodes) {
  EXPECT_EQ(matches(Regex("(?i:'s|'t)"), "'s'S'\u017F'T"), (Matches{"'s", "'S", "'\u017F", "'T"}));
}

TEST(RegexTest, LiteralMatchesItself) {
  EXPECT_EQ(matches(Regex::literal("a.*|\\[é^$"), "xa.*|\\[é^$ab"), Matches{"a.*|\\[é^$"});
}

TEST(RegexTest, CopiesMatchIndependently) {
  const Regex first("a+");
  EXPECT_EQ(matches(first, "caat"), Matches{"aa"});
  EXPECT_EQ(matches(Regex(first), "caat"), Matches{"aa"});
}

TEST(RegexTest, AMillionSpacesMatch) {
  const std::string text(1'000'000, ' ');
  EXPECT_EQ(matches(Regex(R"(\s*[\r\n]+|\s+(?!\S)|\s+)"), text), Matches{text});
}

TEST(RegexTest, AmbiguousConstructsAreRejected) {
  for (const char* pattern :
       {R"(\w+)",    R"(\bx)",     "^x",      "x$",     R"(\h)",      R"(\v)",      R"(\R)",
        R"([a[b]])", "[a&&b]",     "[]a]",    "(?m:x)", "(?s)x",      "(?<name>x)", "x{1,2}+",
        R"(\pL)",    R"(\p{Han})", R"(\x41)", "\\",     "(*ANYCRLF)", R"(\u12)"}) {
    EXPECT_THROW(Regex{pattern}, InputError) << pattern;
  }
  EXPECT_THROW(Regex{"(x"}, InputError);
  EXPECT_THROW(Regex{"[x"}, InputError);
  EXPECT_THROW(Regex{std::string(1 << 17, 'x')}, InputError);
}

TEST(RegexTest, ErrorNamesTheConstruct) {
  try {
    Regex(R"(x|\w+)");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(R"(x|\w+ of the pre-tokenizer uses \w)"),
              std::string::npos)
        << error.what();
  }
}

TEST(RegexTest, KnownPatternsAreUnchanged) {
  EXPECT_EQ(to_pcre2(R"([^\r\n\p{L}]?\p{Lu}++(?!\.)(?<=x)(?:\-|\d)?+)"),
            R"([^\r\n\p{L}]?\p{Lu}++(?!\.)(?<=x)(?:\-|\d)?+)");
  EXPECT_EQ(to_pcre2(R"([\u0041-\u005A])"), R"([\x{0041}-\x{005A}])");
}

}  // namespace
}  // namespace tlt::tokenizer

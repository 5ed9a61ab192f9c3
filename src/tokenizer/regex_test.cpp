// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/support/processor_time.h"

namespace tlt::tokenizer {
namespace {

using Matches = std::vector<std::string>;

Matches matches(Regex regex, std::string_view text) {
  Matches found;
  RegexBudget budget(text);
  regex.for_each_match(text, budget, [&](size_t begin, size_t end) {
    found.emplace_back(text.substr(begin, end - begin));
  });
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

std::string metered(std::string_view pattern) {
  return to_pcre2(pattern, /*with_newer=*/false, /*is_metered=*/true);
}

TEST(RegexTest, CalloutsCountRepeatsAndChoices) {
  EXPECT_EQ(metered(R"(a+b*?[c*]*+\++)"), R"(a+(?C0)b*?(?C255)[c*]*+(?C1)\++(?C2))");
  EXPECT_EQ(metered(R"((?:f|g)+(h){2,})"), R"((?:(?C255)f|g)+((?C255)h){2,})");
  EXPECT_EQ(metered("a{2,}b{3}c{,d{"), "a{2,}(?C0)b{3}c{,d{");
  EXPECT_EQ(metered(R"((?i)x(?i:'s|'t)?\p{N}{1,2} ?[a?]?y?z)"),
            R"((?i)x(?i:'s|'t)?\p{N}{1,2} ?[a?]?(?C255)y?(?C255)z)");
  EXPECT_EQ(metered("(?=a(?:b|c))(?!d)(?<!e)(?>f|g)"), "(?=a(?:b|c))(?!d)(?<!e)(?>f|g)");
}

std::string repeated(std::string_view part, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += part;
  return all;
}

// Issue 23: 200,000 letters took 6.7 s, since each match looked at all of the rest.
TEST(RegexTest, BudgetEndsAPatternThatLooksTooFar) {
  try {
    matches(Regex("[a]*b|a"), std::string(200'000, 'a'));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "a pattern of tokenizer.json takes more than 256 steps for each byte of the text; "
                 "use the tokenizer.json that the model was published with");
  }
}

// Without the budget most of these do not end.
TEST(RegexTest, EveryPatternEndsSoon) {
  const std::string text(100'000, 'a');
  for (const std::string& pattern :
       {std::string("[a]*[bc]"), std::string("a*a*b|a"), std::string("a*a*?a*b|a"),
        std::string("(?:a|a)*b|a"), std::string("(?:a+)+b|a"), std::string("(?:a|aa)+?b|a"),
        std::string("(?>a*a)b|a"), std::string("(?=a*a*b)b|a"), std::string("(?:a*?)*?b|a"),
        std::string("(?:a{1,9}){2,}b|a"), repeated("a{0,99}", 9) + "b|a",
        repeated("a?", 24) + repeated("a", 24) + "b|a", repeated("(?:a|a)", 24) + "b|a",
        repeated("[a]*b|", 99) + "a"}) {
    const auto begin = std::chrono::steady_clock::now();
    try {
      matches(Regex(pattern), text);
    } catch (const InputError&) {
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(seconds.count(), 5) << pattern;
  }
}

// Those of GPT-2, Llama 3, Qwen 2 and 3, and GPT-4o.
TEST(RegexTest, PublishedPatternsStayWithinTheBudget) {
  const std::string suffix = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
  const std::string spaces = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])",
                    lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])", before = R"([^\r\n\p{L}\p{N}]?)";
  const std::string mixed = repeated("It's 12 o'clock, and\n\n  日本語 IS ü_7, 1.5 {}", 3'000);
  for (const std::string& pattern :
       {std::string(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|)") +
            R"(\s+(?!\S)|\s+)",
        suffix + "|" + before + R"(\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" + spaces,
        suffix + "|" + before + R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" + spaces,
        before + upper + "*" + lower + "+" + suffix + "?|" + before + upper + "+" + lower + "*" +
            suffix + R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" + spaces}) {
    const Regex regex(pattern);
    for (const std::string& text :
         {mixed, std::string(100'000, ' '), std::string(100'000, 'A'), std::string(100'000, 'a'),
          std::string(100'000, '-'), std::string(100'000, '\n'), repeated("1!", 40'000),
          repeated("a b", 40'000), repeated(" \n", 40'000), repeated("日", 40'000),
          repeated("Ab", 40'000), std::string(60'000, ' ') + "a"}) {
      EXPECT_GT(matches(regex, text).size(), 0U) << pattern << " " << text.substr(0, 9);
    }
  }
}

// std::string::find takes n^2 steps here: minutes.
TEST(RegexTest, LiteralsAreFoundInLinearTime) {
  const std::string text(8'000'000, 'a'), part = std::string(4'000'000, 'a') + "b";
  Matches none, one;
  EXPECT_LT(tests::processor_seconds([&] {
              none = matches(Regex::literal(part), text);
              one = matches(Regex::literal(part), text + "b");
            }),
            tests::kFarFromQuadratic);
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(one == Matches{part});
  EXPECT_EQ(matches(Regex::literal(""), "éa"), (Matches{"", ""}));
  EXPECT_EQ(matches(Regex(Regex::literal("a")), "aba"), (Matches{"a", "a"}));
}

}  // namespace
}  // namespace tlt::tokenizer

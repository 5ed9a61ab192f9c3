// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::tokenizer {
namespace {

using Words = std::vector<std::string>;

Words split(const char* description, std::string_view text, bool begins_text = true) {
  PreTokenizer splitter(nlohmann::json::parse(description));
  std::vector<std::string_view> words;
  RegexBudget budget(text);
  splitter.split(text, begins_text, budget, words);
  return {words.begin(), words.end()};
}

TEST(PreTokenizerTest, NullMakesOneWord) {
  EXPECT_EQ(split("null", "a b"), Words{"a b"});
  EXPECT_EQ(split("null", ""), Words{});
}

TEST(PreTokenizerTest, IsolatedKeepsMatchesAndGaps) {
  constexpr auto kSplit =
      R"({"type":"Split","pattern":{"Regex":"\\p{N}"},"behavior":"Isolated","invert":false})";
  EXPECT_EQ(split(kSplit, "ab12c"), (Words{"ab", "1", "2", "c"}));
}

TEST(PreTokenizerTest, RemovedDropsMatchesOrWhenInvertedGaps) {
  EXPECT_EQ(split(R"({"type":"Split","pattern":{"String":"."},"behavior":"Removed"})", ".a..b"),
            (Words{"a", "b"}));
  EXPECT_EQ(
      split(R"({"type":"Split","pattern":{"Regex":"[a-z]+"},"behavior":"Removed","invert":true})",
            "ab1c 2"),
      (Words{"ab", "c"}));
}

TEST(PreTokenizerTest, DigitsAloneOrTogether) {
  EXPECT_EQ(split(R"({"type":"Digits","individual_digits":true})", "a12½"),
            (Words{"a", "1", "2", "½"}));
  EXPECT_EQ(split(R"({"type":"Digits","individual_digits":false})", "a12½b"),
            (Words{"a", "12½", "b"}));
}

TEST(PreTokenizerTest, ByteLevelPutsASpaceInFrontOfEachPiece) {
  constexpr auto kByteLevel = R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true})";
  EXPECT_EQ(split(kByteLevel, "it's"), (Words{" it", "'s"}));
  EXPECT_EQ(split(kByteLevel, " it"), Words{" it"});
  EXPECT_EQ(split(R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
                      {"type":"ByteLevel","add_prefix_space":true,"use_regex":false}]})",
                  "a1"),
            (Words{" a", " 1"}));
}

TEST(PreTokenizerTest, UnknownTypesAreNamed) {
  const auto message = [](const char* description) -> std::string {
    try {
      PreTokenizer splitter(nlohmann::json::parse(description));
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_NE(message(R"({"type":"BertPreTokenizer"})").find("BertPreTokenizer"), std::string::npos);
  EXPECT_NE(
      message(R"({"type":"Split","pattern":{"String":"x"},"behavior":"Doubled"})").find("Doubled"),
      std::string::npos);
  EXPECT_NE(
      message(R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})")
          .find("after ByteLevel"),
      std::string::npos);
}

TEST(PreTokenizerTest, MatchesMergeWithTheirNeighbours) {
  const auto by = [](const std::string& behavior, std::string_view text) {
    return split(
        (R"({"type":"Split","pattern":{"String":" "},"behavior":")" + behavior + "\"}").c_str(),
        text);
  };
  EXPECT_EQ(by("MergedWithPrevious", "a  b c "), (Words{"a ", " ", "b ", "c "}));
  EXPECT_EQ(by("MergedWithPrevious", " a"), (Words{" ", "a"}));
  EXPECT_EQ(by("MergedWithNext", "a  b c "), (Words{"a", " ", " b", " c", " "}));
  EXPECT_EQ(by("Contiguous", "a  b c"), (Words{"a", "  ", "b", " ", "c"}));
}

TEST(PreTokenizerTest, MetaspaceMarksSpacesAndTheBeginning) {
  const auto by = [](const std::string& scheme, std::string_view text, bool begins_text = true) {
    return split(
        (R"({"type":"Metaspace","replacement":"▁","prepend_scheme":")" + scheme + "\"}").c_str(),
        text, begins_text);
  };
  EXPECT_EQ(by("always", "ab  c", false), (Words{"▁ab", "▁", "▁c"}));
  EXPECT_EQ(by("first", "ab c"), (Words{"▁ab", "▁c"}));
  EXPECT_EQ(by("first", "ab c", false), (Words{"ab", "▁c"}));
  EXPECT_EQ(by("never", "ab c"), (Words{"ab", "▁c"}));
  EXPECT_EQ(by("always", " ▁a"), (Words{"▁", "▁a"}));
  EXPECT_EQ(split(R"({"type":"Metaspace","replacement":"▁","split":false})", "a b"), Words{"▁a▁b"});
}

TEST(PreTokenizerTest, ContradictoryMetaspaceIsAnError) {
  EXPECT_THROW(split(R"({"type":"Metaspace","replacement":"▁","add_prefix_space":false})", "a"),
               InputError);
}

// Each would lengthen every word.
TEST(PreTokenizerTest, SecondMetaspaceIsAnError) {
  EXPECT_THROW(split(R"({"type":"Sequence","pretokenizers":[
                         {"type":"Metaspace","replacement":"▁"},
                         {"type":"Metaspace","replacement":"_"}]})",
                     "a"),
               InputError);
}

// Issue 23: one budget for all steps and pieces of a text.
TEST(PreTokenizerTest, StepsShareTheBudget) {
  std::string steps;
  for (int i = 0; i < 15; ++i)
    steps += R"({"type":"Split","behavior":"Isolated","pattern":{"Regex":"(?:a|b)+|(?:c|d)*"}},)";
  const std::string description = R"({"type":"Sequence","pretokenizers":[)" + steps +
                                  R"({"type":"Digits","individual_digits":true}]})";
  EXPECT_EQ(split(description.c_str(), "ab1").size(), 2U);
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += "ac";
  EXPECT_THROW(split(description.c_str(), text), InputError);
}

}  // namespace
}  // namespace tlt::tokenizer

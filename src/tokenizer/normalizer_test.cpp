// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tests/support/processor_time.h"

namespace tlt::tokenizer {
namespace {

constexpr auto kLlama2 = R"({"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";

std::string normalized(const char* description, std::string_view text) {
  Normalizer normalizer(nlohmann::json::parse(description));
  std::string buffer;
  RegexBudget budget(text);
  return std::string(normalizer.apply(text, budget, buffer));
}

TEST(NormalizerTest, NullChangesNothing) {
  Normalizer normalizer;
  std::string buffer;
  const std::string_view text = "a e\u0301";
  RegexBudget budget(text);
  EXPECT_EQ(normalizer.apply(text, budget, buffer).data(), text.data());
}

TEST(NormalizerTest, PrependAndReplaceAsInLlama2) {
  EXPECT_EQ(normalized(kLlama2, "a  b"), "▁a▁▁b");
  EXPECT_EQ(normalized(kLlama2, " "), "▁▁");
  EXPECT_EQ(normalized(kLlama2, ""), "");
}

TEST(NormalizerTest, StepsRunInTheirOrder) {
  EXPECT_EQ(normalized(R"({"type": "Sequence", "normalizers": [
      {"type": "NFC"}, {"type": "Replace", "pattern": {"String": "é"}, "content": "e"}]})",
                       "cafe\u0301"),
            "cafe");
}

TEST(NormalizerTest, ReplaceAcceptsAPattern) {
  EXPECT_EQ(normalized(R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "_"})",
                       "a b  c   d"),
            "a b_c_d");
}

TEST(NormalizerTest, CopyGivesTheSame) {
  const Normalizer first(nlohmann::json::parse(kLlama2));
  Normalizer second(first);
  std::string buffer;
  RegexBudget budget("x y");
  EXPECT_EQ(second.apply("x y", budget, buffer), "▁x▁y");
}

// Issue 23: a megabyte for each of 10,000 letters asked for 10 GB.
TEST(NormalizerTest, TextGrowsWithinALimit) {
  const auto replace = [](const std::string& content) {
    return R"({"type": "Replace", "pattern": {"String": "a"}, "content": ")" + content + "\"}";
  };
  const std::string text(10'000, 'a');
  EXPECT_EQ(normalized(replace("12345678").c_str(), text).size(), 80'000U);
  EXPECT_EQ(normalized(replace(std::string(60, 'b')).c_str(), "a").size(), 60U);
  const std::string doubled = R"({"type": "Sequence", "normalizers": [)" + replace("aa") + "," +
                              replace("aa") + "," + replace("aa") + "," + replace("aa") + "]}",
                    prefix = R"({"type": "Prepend", "prepend": ")" + std::string(100, 'b') + "\"}";
  for (const std::string& description : {replace(std::string(1'000'000, 'b')), doubled})
    EXPECT_THROW(normalized(description.c_str(), text), InputError);
  try {
    normalized(prefix.c_str(), "a");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "the normalizer of tokenizer.json makes more than 72 bytes of a text of 1 bytes; "
                 "use the tokenizer.json that the model was published with");
  }
}

TEST(NormalizerTest, PatternsShareTheBudget) {
  EXPECT_THROW(normalized(R"({"type": "Replace", "pattern": {"Regex": "[a]*b|a"}, "content": "x"})",
                          std::string(100'000, 'a')),
               InputError);
}

// std::string::find takes n^2 steps here: minutes.
TEST(NormalizerTest, LongPatternIsFoundInLinearTime) {
  const std::string part = std::string(4'000'000, 'a') + "b", text(8'000'000, 'a');
  const std::string description =
      R"({"type": "Replace", "pattern": {"String": ")" + part + R"("}, "content": "x"})";
  std::string same;
  EXPECT_LT(tests::processor_seconds([&] { same = normalized(description.c_str(), text); }),
            tests::kFarFromQuadratic);
  EXPECT_TRUE(same == text);
}

TEST(NormalizerTest, UnknownTypesAreNamed) {
  EXPECT_THROW(normalized(R"({"type": "Lowercase"})", "a"), InputError);
  EXPECT_THROW(normalized(R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})", "a"),
               InputError);
}

}  // namespace
}  // namespace tlt::tokenizer

// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::tokenizer {
namespace {

constexpr auto kLlama2 = R"({"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";

std::string normalized(const char* description, std::string_view text) {
  Normalizer normalizer(nlohmann::json::parse(description));
  std::string buffer;
  return std::string(normalizer.apply(text, buffer));
}

TEST(NormalizerTest, NullChangesNothing) {
  Normalizer normalizer;
  std::string buffer;
  const std::string_view text = "a e\u0301";
  EXPECT_EQ(normalizer.apply(text, buffer).data(), text.data());
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
  EXPECT_EQ(second.apply("x y", buffer), "▁x▁y");
}

TEST(NormalizerTest, UnknownTypesAreNamed) {
  EXPECT_THROW(normalized(R"({"type": "Lowercase"})", "a"), InputError);
  EXPECT_THROW(normalized(R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})", "a"),
               InputError);
}

}  // namespace
}  // namespace tlt::tokenizer

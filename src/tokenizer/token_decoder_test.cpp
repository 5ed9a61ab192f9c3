// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/token_decoder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::tokenizer {
namespace {

using Texts = std::vector<std::string>;

constexpr auto kLlama2Decoder = R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

// The text that each token completes, and the rest at the end.
Texts streamed(const char* description, const Texts& tokens) {
  TokenDecoder decoder(nlohmann::json::parse(description));
  DecodeStream stream(decoder);
  Texts texts;
  for (const std::string& token : tokens) stream.push(decoder.piece(token), texts.emplace_back());
  stream.finish(texts.emplace_back());
  return texts;
}

std::string decoded(const char* description, const Texts& tokens) {
  std::string text;
  for (const std::string& part : streamed(description, tokens)) text += part;
  return text;
}

TEST(TokenDecoderTest, OneSpaceIsRemovedFromTheBeginning) {
  EXPECT_EQ(decoded(kLlama2Decoder, {"▁a", "▁b", "c"}), "a bc");
  EXPECT_EQ(decoded(kLlama2Decoder, {"▁", "▁a"}), " a");
  EXPECT_EQ(decoded(kLlama2Decoder, {"▁▁", "▁"}), "  ");
  EXPECT_EQ(decoded(kLlama2Decoder, {"a", "▁b"}), "a b");
  EXPECT_EQ(decoded(kLlama2Decoder, {"<0x20>", "a"}), "a");
  EXPECT_EQ(decoded(kLlama2Decoder, {}), "");
}

TEST(TokenDecoderTest, RunOfBytesWaitsForItsEnd) {
  EXPECT_EQ(streamed(kLlama2Decoder, {"a", "<0xC3>", "<0xA9>", "b"}),
            (Texts{"a", "", "", "éb", ""}));
  EXPECT_EQ(streamed(kLlama2Decoder, {"<0xC3>", "<0xA9>"}), (Texts{"", "", "é"}));
}

TEST(TokenDecoderTest, OneWrongByteInvalidatesTheRun) {
  EXPECT_EQ(decoded(kLlama2Decoder, {"<0xC3>", "<0xA9>", "<0xC3>", "b"}), "\uFFFD\uFFFD\uFFFDb");
  EXPECT_EQ(decoded(kLlama2Decoder, {"<0x41>", "x", "<0xFF>"}), "Ax\uFFFD");
}

TEST(TokenDecoderTest, InvalidByteTokenIsText) {
  EXPECT_EQ(decoded(kLlama2Decoder, {"<0xG1>", "<0x411>", "<0x4 >"}), "<0xG1><0x411><0x4 >");
}

TEST(TokenDecoderTest, MetaspaceDropsTheFirstTokensSpaces) {
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "▁"})", {"▁▁a", "▁b"}), "a b");
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})",
                    {"▁a", "▁b"}),
            " a b");
}

TEST(TokenDecoderTest, StripBeforeFuseIsPerToken) {
  EXPECT_EQ(
      decoded(R"({"type": "Strip", "content": "_", "start": 2, "stop": 1})", {"___a__", "_", "b_"}),
      "_a_b");
}

TEST(TokenDecoderTest, StreamCanBeReusedAfterItsEnd) {
  TokenDecoder decoder(nlohmann::json::parse(kLlama2Decoder));
  DecodeStream stream(decoder);
  for (int round = 0; round < 2; ++round) {
    std::string text;
    stream.push(decoder.piece("▁a"), text);
    stream.push(decoder.piece("<0xC3>"), text);
    stream.finish(text);
    EXPECT_EQ(text, "a\uFFFD");
  }
}

// Issue 23: a letter could become a megabyte in each token.
TEST(TokenDecoderTest, TokenGrowsWithinALimit) {
  const auto replace = [](const std::string& content) {
    return R"({"type": "Replace", "pattern": {"String": "a"}, "content": ")" + content + "\"}";
  };
  EXPECT_EQ(decoded(replace(std::string(72, 'b')).c_str(), {"a"}).size(), 72U);
  try {
    decoded(replace(std::string(73, 'b')).c_str(), {"a"});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("the decoder of tokenizer.json makes more"))
        << error.what();
  }
}

TEST(TokenDecoderTest, OtherTypesAndOrdersAreNamed) {
  const auto sequence = [](const std::string& first, const std::string& second) {
    return R"({"type": "Sequence", "decoders": [{"type": ")" + first + R"("}, {"type": ")" +
           second + R"("}]})";
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"null", "null"},
      {R"({"type": "WordPiece"})", "WordPiece"},
      {R"({"type": "Metaspace", "replacement": "▁▁"})", "one character"},
      {R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "last"})", "last"},
      {R"({"type": "Strip", "content": "ab", "start": 0, "stop": 0})", "one character"},
      {sequence("Fuse", "ByteFallback"), "ByteFallback is not supported in this place"},
      {sequence("ByteLevel", "Fuse"), "Fuse is not supported in this place"},
      {sequence("ByteFallback", "Replace"), "Replace is not supported in this place"},
      {sequence("ByteFallback", "Strip"), "Strip is not supported in this place"}};
  for (const auto& [description, want] : cases) {
    try {
      decoded(description.c_str(), {"a"});
      ADD_FAILURE() << description << " was read";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(want), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tlt::tokenizer

// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tlt {
namespace {

// UTF-8 as the standard's encoder writes it.
std::string encoded(char32_t c) {
  std::string text;
  const auto add = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6), add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12), add(0x80 | (c >> 6 & 0x3F)), add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18), add(0x80 | (c >> 12 & 0x3F)), add(0x80 | (c >> 6 & 0x3F)),
        add(0x80 | (c & 0x3F));
  }
  return text;
}

std::string lossy(std::string_view bytes) {
  std::string text;
  EXPECT_EQ(append_lossy(text, bytes, /*is_last=*/true), bytes.size());
  return text;
}

// Mostly bytes near the boundaries of the tables.
std::string random_bytes(RandomStream& random) {
  constexpr std::string_view kBytes =
      "a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5\xFF";
  std::string bytes;
  for (uint64_t i = random.below(12); i > 0; --i)
    bytes.push_back(kBytes[random.below(kBytes.size())]);
  return bytes;
}

TEST(Utf8Test, EveryCharacterRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    const std::string text = encoded(c);
    const bool is_surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(is_valid_utf8(text), !is_surrogate) << std::hex << uint32_t{c};
    if (!is_surrogate) {
      ASSERT_EQ(code_point(text), c);
      ASSERT_EQ(lossy(text), text);
    }
  }
}

TEST(Utf8Test, EveryPrefixOfACharacterIsIncomplete) {
  for (const char32_t c : {U'é', U'€', U'\U0010FFFF', U'\U00010000'}) {
    const std::string text = encoded(c);
    for (size_t bytes = 1; bytes < text.size(); ++bytes) {
      EXPECT_EQ(next_utf8(text.substr(0, bytes)).kind, Utf8Kind::kIncomplete);
      EXPECT_EQ(next_utf8(text.substr(0, bytes)).bytes, bytes);
    }
  }
}

// The examples of Unicode's table 3-11 and of the Rust standard library.
TEST(Utf8Test, InvalidSequenceIsOneReplacement) {
  EXPECT_EQ(lossy("a\xF1\x80\x80\xE1\x80\xC2"
                  "b\x80"
                  "c\x80\xBF"
                  "d"),
            "a\uFFFD\uFFFD\uFFFD"
            "b\uFFFD"
            "c\uFFFD\uFFFD"
            "d");
  EXPECT_EQ(lossy("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(lossy("\xF0\x80\x80\x41"),
            "\uFFFD\uFFFD\uFFFD"
            "A");
  EXPECT_EQ(lossy("Hello \xF0\x90\x80World"), "Hello \uFFFDWorld");
  EXPECT_EQ(lossy("\xE2\x82"), "\uFFFD");
}

TEST(Utf8Test, PiecesGiveTheSameTextAsTheWhole) {
  RandomStream random(1, {});
  for (int round = 0; round < 20000; ++round) {
    const std::string bytes = random_bytes(random);
    std::string text, held;
    for (const char byte : bytes) {
      held.push_back(byte);
      held.erase(0, append_lossy(text, held, /*is_last=*/false));
      ASSERT_LE(held.size(), 3U);
    }
    append_lossy(text, held, /*is_last=*/true);
    ASSERT_EQ(text, lossy(bytes)) << byte_level_text(bytes);
    ASSERT_TRUE(is_valid_utf8(text));
    ASSERT_EQ(text == bytes, is_valid_utf8(bytes));
  }
}

TEST(Utf8Test, ByteLevelAlphabetHasEveryByte) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_TRUE(is_valid_utf8(byte_level_text(all)));
  EXPECT_EQ(byte_level_bytes(byte_level_text(all)), all);
  EXPECT_EQ(byte_level_text(" a\n\xC2\xAD"), "ĠaĊÂŃ");
}

TEST(Utf8Test, OtherCharactersAreNotInTheAlphabet) {
  for (const char* text : {" ", "\n", "\u00A0", "\u00AD", "\u0144", "日", "\xFF", "a\xC3"}) {
    EXPECT_EQ(byte_level_bytes(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace tlt

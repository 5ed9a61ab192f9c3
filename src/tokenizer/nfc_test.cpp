// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/nfc.h"

#include <gtest/gtest.h>

namespace tlt::tokenizer {
namespace {

TEST(NfcTest, ComposesAndOrders) {
  EXPECT_EQ(to_nfc("cafe\u0301"), "caf\u00E9");
  EXPECT_EQ(to_nfc("\u212B"), "\u00C5");
  EXPECT_EQ(to_nfc("o\u0302\u0323"), "\u1ED9");
  EXPECT_EQ(to_nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C");  // composition exclusion
  EXPECT_EQ(to_nfc(""), "");
  EXPECT_EQ(to_nfc(std::string_view("a\0e\u0301", 5)), std::string_view("a\0\u00E9", 4));
}

// Observed behaviour of the Hugging Face library (tokenizers 0.23.3).
TEST(NfcTest, MarksNewerThanUnicode9StayInPlace) {
  EXPECT_EQ(to_nfc("\u3131\u036C\u1DF7"), "\u3131\u036C\u1DF7");
  EXPECT_EQ(to_nfc("c\u0335\u034E\u031F\u1715"), "c\u0335\u034E\u031F\u1715");
  EXPECT_EQ(to_nfc("\U00011935\U00011930"), "\U00011935\U00011930");
}

TEST(NfcTest, HangulSyllableDoesNotAbsorbTheNextVowel) {
  EXPECT_EQ(to_nfc("\u1101\u1171\u11A7"), "\uB00C\u11A7");
}

TEST(NfcTest, SurelyNfcTextsDoNotChange) {
  EXPECT_TRUE(is_surely_nfc("plain \u00FC\u02FF"));
  EXPECT_FALSE(is_surely_nfc("e\u0301"));
  for (char32_t c = 1; c < 0x300; ++c) {
    std::string text(1, static_cast<char>(c));
    if (c >= 0x80) text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    ASSERT_TRUE(is_surely_nfc(text));
    ASSERT_EQ(to_nfc("a" + text + "z"), "a" + text + "z") << std::hex << uint32_t{c};
  }
}

}  // namespace
}  // namespace tlt::tokenizer

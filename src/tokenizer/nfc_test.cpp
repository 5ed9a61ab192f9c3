// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/nfc.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <array>
#include <cstdlib>

#include "base/random.h"
#include "tests/support/processor_time.h"

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

// utf8proc's own NFC, which takes n^2 steps for a run of marks.
std::string slow_nfc(const std::string& text) {
  utf8proc_uint8_t* made = nullptr;
  const auto bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &made,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::string normalized(reinterpret_cast<const char*>(made), static_cast<size_t>(bytes));
  std::free(made);
  return normalized;
}

TEST(NfcTest, RandomTextsMatchReference) {
  constexpr std::array kParts = std::to_array<const char*>(
      {"a",      "e",      "o",      "s",      "\u0301", "\u0302",     "\u0307",
       "\u0308", "\u0323", "\u0327", "\u0328", "\u0338", "\u0345",     "\u034F",
       "\u05B0", "\u0653", "\u093C", "\u0915", "\u0958", "\u0F71",     "\u0F72",
       "\u0F73", "\u1100", "\u1161", "\u11A8", "\uAC00", "\u1E69",     "\u1F82",
       "\u0390", "\u212B", "\uFB1D", "\u3099", "\u304B", "\U0001D15E", "\U0001D165"});
  RandomStream random(8, {});
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (uint64_t parts = random.below(16); parts > 0; --parts)
      text += kParts[random.below(kParts.size())];
    ASSERT_EQ(to_nfc(text), slow_nfc(text)) << text;
  }
}

// Issue 23: 100 KB took 5.4 s, and four times that for each doubling: these would take minutes.
TEST(NfcTest, LongRunsOfMarksAreOrdered) {
  constexpr int kMarks = 200'000;
  std::string text = "a", acute, below;
  for (int i = 0; i < kMarks; ++i) {
    text += "\u0301\u0323";
    acute += "\u0301";
    if (i > 0) below += "\u0323";
  }
  std::string ordered;
  EXPECT_LT(tests::processor_seconds([&] { ordered = to_nfc(text); }), tests::kFarFromQuadratic);
  EXPECT_EQ(ordered, "\u1EA1" + below + acute);
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

// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <array>
#include <cstdint>
#include <utility>

namespace tlt {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Properties that a first byte determines: the length of its character and the range of the second
// byte (Unicode table 3-7).
struct Lead {
  uint8_t length;  // 0: starts no character
  uint8_t second_low, second_high;
};

constexpr Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// The alphabet: printable Latin-1 bytes are themselves, the 68 others are U+0100, U+0101, …
struct Alphabet {
  std::array<char32_t, 256> character_of{};
  std::array<int16_t, 0x144> byte_of{};  // -1: not in the alphabet

  Alphabet() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      character_of[byte] = is_printable ? static_cast<char32_t>(byte) : next++;
      byte_of[character_of[byte]] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
  const Lead lead = lead_of(static_cast<uint8_t>(text[0]));
  if (lead.length == 0) return {Utf8Kind::kInvalid, 1};
  uint8_t low = lead.second_low, high = lead.second_high;
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, i};
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    if (byte < low || byte > high) return {Utf8Kind::kInvalid, i};
    low = 0x80, high = 0xBF;
  }
  return {Utf8Kind::kCharacter, lead.length};
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    if (step.kind != Utf8Kind::kCharacter) return false;
    text.remove_prefix(step.bytes);
  }
  return true;
}

char32_t code_point(std::string_view character) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<uint8_t>(character[i]));
  };
  switch (character.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
             (byte(3) & 0x3F);
  }
}

size_t append_lossy(std::string& text, std::string_view bytes, bool is_last) {
  size_t used = 0, copied = 0;  // bytes before `copied` are in the text already
  while (used < bytes.size()) {
    const Utf8Step step = next_utf8(bytes.substr(used));
    if (step.kind == Utf8Kind::kIncomplete && !is_last) break;
    if (step.kind != Utf8Kind::kCharacter) {
      text.append(bytes, copied, used - copied);
      text.append(kReplacement);
      copied = used + step.bytes;
    }
    used += step.bytes;
  }
  text.append(bytes, copied, used - copied);
  return used;
}

std::string byte_level_text(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const char32_t character = alphabet().character_of[static_cast<uint8_t>(byte)];
    if (character < 0x80) {
      text.push_back(static_cast<char>(character));
    } else {
      text.push_back(static_cast<char>(0xC0 | character >> 6));
      text.push_back(static_cast<char>(0x80 | (character & 0x3F)));
    }
  }
  return text;
}

std::optional<std::string> byte_level_bytes(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    if (step.kind != Utf8Kind::kCharacter) return std::nullopt;
    const char32_t character = code_point(text.substr(0, step.bytes));
    if (character >= alphabet().byte_of.size() || alphabet().byte_of[character] < 0)
      return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet().byte_of[character]));
    text.remove_prefix(step.bytes);
  }
  return bytes;
}

}  // namespace tlt

// SPDX-License-Identifier: Apache-2.0
#include "base/sentence.h"

namespace tlt {
namespace {

constexpr std::string_view kGap = " … ";
constexpr size_t kEndBytes = 300;

// False within a UTF-8 character.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

}  // namespace

std::string one_sentence(std::string_view text) {
  std::string line(text);
  if (line.size() > kMaxSentenceBytes) {
    size_t begin = kMaxSentenceBytes - kEndBytes - kGap.size(), end = text.size() - kEndBytes;
    while (begin > 0 && !begins_character(text[begin])) --begin;
    while (end < text.size() && !begins_character(text[end])) ++end;
    line = text.substr(0, begin);
    line.append(kGap).append(text.substr(end));
  }
  for (char& byte : line)
    if (static_cast<unsigned char>(byte) < ' ' || byte == '\x7f') byte = ' ';
  return line;
}

std::string counted(int64_t count, std::string_view noun) {
  std::string text = std::to_string(count) + " ";
  text += noun;
  return count == 1 ? text : text + "s";
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == text.npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

}  // namespace tlt

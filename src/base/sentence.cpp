// SPDX-License-Identifier: Apache-2.0
#include "base/sentence.h"

#include <algorithm>
#include <vector>

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

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = last;
    last = row;
  }
  return last[b.size()];
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

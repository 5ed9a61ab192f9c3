// SPDX-License-Identifier: Apache-2.0
#include "base/sentence.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/utf8.h"

namespace tlt {
namespace {

constexpr double kEndShare = 0.3;  // of a shortened string: how much of it is the end

// False within a UTF-8 character.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

// At most `bytes` of the beginning, without a part of a character.
std::string_view head_of(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && !begins_character(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

// At most `bytes` of the end, without a part of a character.
std::string_view tail_of(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  size_t begin = text.size() - bytes;
  while (begin < text.size() && !begins_character(text[begin])) ++begin;
  return text.substr(begin);
}

// Whether a character may move the cursor, change what was printed, or change the order in which
// characters are displayed.
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

// Escapes control characters except those in `kept`, and bytes that are not UTF-8.
std::string escape_controls(std::string_view text, std::string_view kept) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    const std::string_view bytes = text.substr(0, step.bytes);
    text.remove_prefix(step.bytes);
    if (step.kind != Utf8Kind::kCharacter) {
      for (const char byte : bytes)
        out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    } else if (is_control(code_point(bytes)) && kept.find(bytes) == kept.npos) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(code_point(bytes)));
    } else {
      out += bytes;
    }
  }
  return out;
}

// escape_controls(), with the middle left out if there are more than `max_bytes`.
std::string shortened(std::string_view text, std::string_view kept, size_t max_bytes) {
  if (text.size() <= max_bytes)
    if (std::string whole = escape_controls(text, kept); whole.size() <= max_bytes) return whole;
  const std::string gap = fmt::format(" … ({} bytes) … ", text.size());
  const auto end_bytes = static_cast<size_t>(kEndShare * static_cast<double>(max_bytes));
  const size_t begin_bytes = max_bytes - std::min(max_bytes, end_bytes + gap.size());
  // Cut before and after escaping, which makes the string longer.
  const std::string begin = escape_controls(head_of(text, begin_bytes), kept),
                    end = escape_controls(tail_of(text, end_bytes), kept);
  std::string line(head_of(begin, begin_bytes));
  return line.append(gap).append(tail_of(end, end_bytes));
}

}  // namespace

std::string one_sentence(std::string_view text, size_t max_bytes) {
  return shortened(text, /*kept=*/"", max_bytes);
}

std::string printable_lines(std::string_view text, size_t max_bytes) {
  return shortened(text, /*kept=*/"\n\t", max_bytes);
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

// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace tlt::tokenizer {
namespace {

struct Range {
  char32_t first, last;
};

// Marks that combine since Unicode 10 to 15, and U+11A7, which utf8proc before 2.9 drops after a
// Hangul syllable: characters that the Hugging Face library neither reorders nor composes.
constexpr std::array kInert = std::to_array<Range>(
    {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
     {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x11A7, 0x11A7},
     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
     {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
     {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
     {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
     {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
     {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
     {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
     {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}});

bool is_inert(char32_t character) {
  const auto range = std::ranges::lower_bound(kInert, character, {}, &Range::last);
  return range != kInert.end() && character >= range->first;
}

constexpr auto kComposition = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

utf8proc_propval_t combining_class(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

std::vector<utf8proc_int32_t> decomposed(std::string_view text) {
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size() + 1);
  std::array<utf8proc_int32_t, 8> parts{};  // of one character, at most 4
  int boundary = 0;                         // not used
  while (!text.empty()) {
    const size_t bytes = next_utf8(text).bytes;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point(text.substr(0, bytes))),
                                parts.data(), std::ssize(parts), kComposition, &boundary);
    TLT_CHECK(count >= 0 && count <= std::ssize(parts), "utf8proc: ", count);
    characters.insert(characters.end(), parts.begin(), parts.begin() + count);
    text.remove_prefix(bytes);
  }
  return characters;
}

// Canonical ordering: a run of marks is sorted by combining class, stably. utf8proc does that too,
// but takes n^2 steps for a run that is not sorted yet.
void order_marks(std::span<utf8proc_int32_t> characters) {
  const auto is_mark = [](utf8proc_int32_t c) { return combining_class(c) != 0; };
  for (auto begin = characters.begin(); begin != characters.end();) {
    begin = std::find_if(begin, characters.end(), is_mark);
    const auto end = std::find_if_not(begin, characters.end(), is_mark);
    if (!std::ranges::is_sorted(begin, end, {}, combining_class))
      std::ranges::stable_sort(begin, end, {}, combining_class);
    begin = end;
  }
}

void append_composed(std::string& out, std::string_view text) {
  if (text.empty()) return;
  std::vector<utf8proc_int32_t> characters = decomposed(text);
  order_marks(characters);
  const auto size = std::ssize(characters);
  characters.push_back(0);  // room for the end of utf8proc's string, which replaces the characters
  const auto bytes = utf8proc_reencode(characters.data(), size, kComposition);
  TLT_CHECK(bytes >= 0, "utf8proc: ", utf8proc_errmsg(bytes));
  out.append(reinterpret_cast<const char*>(characters.data()), static_cast<size_t>(bytes));
}

}  // namespace

// Characters below U+0300 do not combine or decompose under NFC; from there on UTF-8 starts with
// 0xCC or more.
bool is_surely_nfc(std::string_view text) {
  return std::ranges::all_of(text, [](char byte) { return static_cast<uint8_t>(byte) < 0xCC; });
}

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = next_utf8(text.substr(at)).bytes;
    if (is_inert(code_point(text.substr(at, bytes)))) {
      append_composed(out, text.substr(begin, at - begin));
      out.append(text, at, bytes);
      begin = at + bytes;
    }
    at += bytes;
  }
  append_composed(out, text.substr(begin));
  return out;
}

}  // namespace tlt::tokenizer

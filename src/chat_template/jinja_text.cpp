// SPDX-License-Identifier: Apache-2.0
#include "chat_template/jinja_text.h"

#include <fmt/core.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "base/utf8.h"
#include "chat_template/jinja_value.h"

namespace tlt::chat_template::python {
namespace {

struct Range {
  char32_t first, last;
};

// Characters whose upper or title case is more than one character, or differ from each other. (For
// lower case that holds for U+0130, and U+03A3 depends on what follows.)
constexpr std::array kSpecialCase = std::to_array<Range>(
    {{0xDF, 0xDF},      {0x130, 0x131},   {0x149, 0x149},   {0x1C4, 0x1CC},   {0x1F0, 0x1F3},
     {0x345, 0x345},    {0x390, 0x390},   {0x3A3, 0x3A3},   {0x3B0, 0x3B0},   {0x587, 0x587},
     {0x10A0, 0x10FF},  {0x13A0, 0x13FF}, {0x1C80, 0x1CBF}, {0x1E96, 0x1E9E}, {0x1F50, 0x1FFF},
     {0x2C2F, 0x2C2F},  {0x2C5F, 0x2C5F}, {0xA7C0, 0xA7FF}, {0xAB70, 0xABBF}, {0xFB00, 0xFB17},
     {0x10570, 0x105BF}});

bool is_in(char32_t character, std::span<const Range> ranges) {
  const auto range = std::ranges::lower_bound(ranges, character, {}, &Range::last);
  return range != ranges.end() && character >= range->first;
}

char32_t in_case(char32_t character, bool is_upper) {
  const bool is_special = is_upper ? character >= 0x80 && is_in(character, kSpecialCase)
                                   : character == 0x130 || character == 0x3A3;
  if (is_special)
    throw JinjaFault(fmt::format("the other case of U+{:04X} is not supported",
                                 static_cast<uint32_t>(character)));
  const auto code = static_cast<utf8proc_int32_t>(character);
  return static_cast<char32_t>(is_upper ? utf8proc_toupper(code) : utf8proc_tolower(code));
}

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

bool is_cased(char32_t character) {
  const auto kind = category(character);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT;
}

bool is_printable(char32_t character) {  // neither unassigned, separator nor control
  const auto kind = category(character);
  return character == ' ' || (kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS);
}

template <class Visit>
void for_each(std::string_view text, const Visit& visit) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = next_utf8(text.substr(at)).bytes;
    visit(code_point(text.substr(at, bytes)), text.substr(at, bytes));
    at += bytes;
  }
}

// The last character of a string that is not empty.
std::string_view last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

// Strips characters for which `drop` is true.
std::string_view strip_if(std::string_view text, Side side,
                          const std::function<bool(std::string_view)>& drop) {
  while (side != Side::kRight && !text.empty()) {
    const size_t bytes = next_utf8(text).bytes;
    if (!drop(text.substr(0, bytes))) break;
    text.remove_prefix(bytes);
  }
  while (side != Side::kLeft && !text.empty()) {
    const std::string_view last = last_character(text);
    if (!drop(last)) break;
    text.remove_suffix(last.size());
  }
  return text;
}

bool is_space_character(std::string_view character) { return is_space(code_point(character)); }

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// Changes the case of each character: to upper case where `upper` returns true.
std::string mapped(std::string_view text, const std::function<bool(char32_t)>& upper) {
  std::string out;
  out.reserve(text.size());
  for_each(text, [&](char32_t character, std::string_view) {
    append(out, in_case(character, upper(character)));
  });
  return out;
}

}  // namespace

void append(std::string& out, char32_t character) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(size));
}

int64_t length(std::string_view text) {
  return std::ranges::count_if(
      text, [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; });
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for_each(text, [&](char32_t, std::string_view character) { all.push_back(character); });
  return all;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::string_view strip(std::string_view text, Side side) {
  return strip_if(text, side, is_space_character);
}

std::string_view strip(std::string_view text, std::string_view chars, Side side) {
  std::vector<char32_t> dropped;
  for_each(chars, [&](char32_t character, std::string_view) { dropped.push_back(character); });
  std::ranges::sort(dropped);
  return strip_if(text, side, [&](std::string_view character) {
    return std::ranges::binary_search(dropped, code_point(character));
  });
}

size_t position_of(std::string_view text, std::string_view part) {
  const void* found = memmem(text.data(), text.size(), part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

void split(std::string_view text, int64_t limit, const VisitPart& visit) {
  int64_t done = 0;
  for (text = strip(text, Side::kLeft); !text.empty(); text = strip(text, Side::kLeft)) {
    if (limit >= 0 && done++ == limit) return visit(text);
    size_t end = 0;
    while (end < text.size()) {
      const size_t bytes = next_utf8(text.substr(end)).bytes;
      if (is_space(code_point(text.substr(end, bytes)))) break;
      end += bytes;
    }
    visit(text.substr(0, end));
    text.remove_prefix(end);
  }
}

void split(std::string_view text, std::string_view separator, int64_t limit,
           const VisitPart& visit) {
  for (int64_t done = 0; limit < 0 || done < limit; ++done) {
    const size_t at = position_of(text, separator);
    if (at == std::string_view::npos) break;
    visit(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  visit(text);
}

void split_lines(std::string_view text, const VisitPart& visit) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    size_t after = at + next_utf8(text.substr(at)).bytes;
    if (is_line_end(code_point(text.substr(at, after - at)))) {
      visit(text.substr(begin, at - begin));
      if (text.substr(at).starts_with("\r\n")) ++after;
      begin = after;
    }
    at = after;
  }
  if (begin < text.size()) visit(text.substr(begin));
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit) {
  std::string out;
  if (from.empty()) {  // between all characters
    int64_t done = 0;
    for_each(text, [&](char32_t, std::string_view character) {
      if (limit < 0 || done < limit) out.append(to);
      ++done;
      out.append(character);
    });
    if (limit < 0 || done < limit) out.append(to);
    return out;
  }
  bool is_first = true;
  split(text, from, limit, [&](std::string_view part) {
    if (!std::exchange(is_first, false)) out.append(to);
    out.append(part);
  });
  return out;
}

int64_t count(std::string_view text, std::string_view part) {
  if (part.empty()) return length(text) + 1;
  int64_t parts = 0;
  split(text, part, -1, [&](std::string_view) { ++parts; });
  return parts - 1;
}

std::string upper(std::string_view text) {
  return mapped(text, [](char32_t) { return true; });
}

std::string lower(std::string_view text) {
  return mapped(text, [](char32_t) { return false; });
}

std::string title(std::string_view text) {
  bool was_cased = false;
  return mapped(text, [&](char32_t c) { return !std::exchange(was_cased, is_cased(c)); });
}

std::string capitalize(std::string_view text) {
  bool is_first = true;
  return mapped(text, [&](char32_t) { return std::exchange(is_first, false); });
}

std::string repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for_each(text, [&](char32_t c, std::string_view character) {
    const auto code = static_cast<uint32_t>(c);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += character;
    } else {
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
  });
  return out + quote;
}

std::string repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 400> buffer{};
  const double size = std::fabs(value);
  const bool is_plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                    is_plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer.data(), end.ptr);
  if (is_plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<' || c == '>') {
      out += c == '<' ? "&lt;" : "&gt;";
    } else if (c == '\'' || c == '"') {
      out += c == '"' ? "&#34;" : "&#39;";
    } else {
      out += c;
    }
  }
  return out;
}

std::optional<int64_t> try_integer(std::string_view text) {
  text = strip(text);
  const bool is_signed = !text.empty() && (text[0] == '+' || text[0] == '-');
  const std::string digits = replace(text.substr(is_signed ? 1 : 0), "_", "", -1);
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return text[0] == '-' ? -value : value;
}

std::optional<double> try_float(std::string_view text) {
  text = strip(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  const std::string digits = replace(text, "_", "", -1);
  double value = 0;
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, value);
  if (digits.empty() || read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

SlicePlaces slice_places(int64_t size, std::optional<int64_t> begin, std::optional<int64_t> end,
                         int64_t step) {
  const auto clamp = [&](int64_t at) {
    if (at < 0)
      at = at < -size ? -1 : at + size;
    else if (at > size)
      at = size;
    return step > 0 ? std::max<int64_t>(at, 0) : std::min(at, size - 1);
  };
  const int64_t first = begin ? clamp(*begin) : step > 0 ? 0 : size - 1;
  const int64_t last = end ? clamp(*end) : step > 0 ? size : -1;
  // Steps larger than the size visit one position; clamped so that the sum cannot overflow.
  return {.first = first, .last = last, .stride = std::clamp(step, -size - 1, size + 1)};
}

std::string slice(std::string_view text, const SlicePlaces& places) {
  std::string out;
  int64_t wanted = places.first;
  const auto visit = [&](int64_t at, std::string_view character) {
    if (at != wanted || !places.has(at)) return;
    out += character;
    wanted += places.stride;
  };
  if (places.stride > 0) {
    int64_t at = 0;
    for_each(text, [&](char32_t, std::string_view character) { visit(at++, character); });
    return out;
  }
  for (int64_t at = length(text) - 1; at >= 0; --at) {
    const std::string_view character = last_character(text);
    visit(at, character);
    text.remove_suffix(character.size());
  }
  return out;
}

}  // namespace tlt::chat_template::python

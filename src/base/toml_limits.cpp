// SPDX-License-Identifier: Apache-2.0
#include "base/toml_limits.h"

#include <algorithm>

#include "base/check.h"

namespace tlt {
namespace {

// Offset after the string that begins at `begin`, a quote. Three quotes begin a string of several
// lines; it ends with three, and up to two more before these are part of it.
size_t end_of_string(std::string_view text, size_t begin) {
  const char quote = text[begin];
  const bool is_long = text.substr(begin, 3) == std::string(3, quote);
  for (size_t i = begin + (is_long ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (text[i] == quote) {
      size_t end = i + 1;
      if (!is_long) return end;
      while (end < text.size() && text[end] == quote && end < i + 5) ++end;
      if (end - i >= 3) return end;
      i = end - 1;
    }
  }
  return text.size();
}

struct TomlExtent {
  int64_t nesting = 0, dots = 0, keys = 0;  // the greatest nesting, the most dots, all keys
};

TomlExtent extent_of_toml(std::string_view text) {
  TomlExtent extent;
  int64_t open = 0, dots = 0;  // brackets; dots of the key or number so far
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
      case '\'':
        i = end_of_string(text, i) - 1;
        continue;
      case '#':
        i = std::min(text.find('\n', i), text.size());
        dots = 0;
        continue;
      case '.':
        extent.dots = std::max(extent.dots, ++dots);
        if (dots > 1) ++extent.keys;  // one dot may be that of a number
        continue;
      case '[':
      case '{':
        extent.nesting = std::max(extent.nesting, ++open);
        ++extent.keys;
        break;
      case ']':
      case '}':
        open = std::max<int64_t>(open - 1, 0);
        break;
      case '=':
        ++extent.keys;
        break;
      case ',':
      case '\n':
        break;
      default:
        continue;
    }
    dots = 0;
  }
  return extent;
}

}  // namespace

bool exceeds_toml_limits(std::string_view text) {
  const TomlExtent extent = extent_of_toml(text);
  return extent.nesting > kMaxTomlNesting || extent.dots > kMaxTomlDots ||
         extent.keys > kMaxTomlKeys;
}

void check_toml_limits(std::string_view text, const std::string& place) {
  const TomlExtent extent = extent_of_toml(text);
  TLT_CHECK_INPUT(extent.nesting <= kMaxTomlNesting, place, ": lists and tables nested more than ",
                  kMaxTomlNesting, " deep are not supported");
  TLT_CHECK_INPUT(extent.dots <= kMaxTomlDots, place, ": a key with more than ", kMaxTomlDots,
                  " dots is not supported");
  TLT_CHECK_INPUT(extent.keys <= kMaxTomlKeys, place, ": more than ", kMaxTomlKeys,
                  " keys, tables and lists are not supported");
}

}  // namespace tlt

// String functions that several rewards share.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tlt {

// `text` without ASCII white space at both ends.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace tlt

// SPDX-License-Identifier: Apache-2.0
#include "base/json_depth.h"

#include <cstddef>

#include "base/check.h"

namespace tlt {

bool is_too_deep_json(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {  // brackets in a string do not count
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
    } else if (text[i] == '[' || text[i] == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (text[i] == ']' || text[i] == '}') {
      --depth;
    }
  }
  return false;
}

void check_json_depth(std::string_view text, const std::string& place) {
  TLT_CHECK_INPUT(!is_too_deep_json(text), place, ": lists and objects nested more than ",
                  kMaxJsonDepth, " deep are not supported");
}

}  // namespace tlt

// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/replacement.h"

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::tokenizer {

Replacement::Replacement(const nlohmann::json& description)
    : content_(description.at("content").get<std::string>()) {
  const auto& pattern = description.at("pattern");
  if (pattern.contains("String")) {
    pattern_ = pattern.at("String").get<std::string>();
    TLT_CHECK_INPUT(!pattern_.empty(), "Replace with an empty pattern is not supported");
  } else {
    regex_.emplace(pattern.at("Regex").get<std::string>());
  }
}

bool Replacement::try_apply(std::string_view text, std::string& out) {
  out.clear();
  size_t done = 0;
  bool is_found = false;
  const auto replace = [&](size_t begin, size_t end) {
    is_found = true;
    out.append(text, done, begin - done).append(content_);
    done = end;
  };
  if (regex_) {
    regex_->for_each_match(text, replace);
  } else {
    for (size_t at = text.find(pattern_); at != text.npos; at = text.find(pattern_, done))
      replace(at, at + pattern_.size());
  }
  if (is_found) out.append(text, done);
  return is_found;
}

}  // namespace tlt::tokenizer

// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/replacement.h"

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::tokenizer {

void RewriteLimits::check(size_t bytes) const {
  const size_t most = kLeast + kMostGrowth * text_bytes;
  TLT_CHECK_INPUT(bytes <= most, "the ", component, " of tokenizer.json makes more than ", most,
                  " bytes of a text of ", text_bytes,
                  " bytes; use the tokenizer.json that the model was published with");
}

Replacement::Replacement(const nlohmann::json& description)
    : pattern_(Regex::read(description.at("pattern"))),
      content_(description.at("content").get<std::string>()) {
  const auto& pattern = description.at("pattern");
  TLT_CHECK_INPUT(!(pattern.contains("String") && pattern.at("String") == ""),
                  "Replace with an empty pattern is not supported");
}

bool Replacement::try_apply(std::string_view text, const RewriteLimits& limits, std::string& out) {
  out.clear();
  size_t done = 0;
  bool is_found = false;
  pattern_.for_each_match(text, limits.budget, [&](size_t begin, size_t end) {
    is_found = true;
    limits.check(out.size() + (begin - done) + content_.size());
    out.append(text, done, begin - done).append(content_);
    done = end;
  });
  if (!is_found) return false;
  limits.check(out.size() + (text.size() - done));
  out.append(text, done);
  return true;
}

}  // namespace tlt::tokenizer

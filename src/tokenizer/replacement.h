// Replacement: the step Replace of a tokenizer.json's normalizer or decoder: replaces every
// occurrence of a string or match of a regular expression.
//
// Replace of a letter by a megabyte could make gigabytes of a small text: RewriteLimits bound what
// the steps of a normalizer or decoder make of one text.
//
// Threading  one copy per thread if the pattern is a regular expression (it keeps match state).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "tokenizer/regex.h"

namespace tlt::tokenizer {

struct RewriteLimits {
  static constexpr size_t kMostGrowth = 8, kLeast = 64;

  // `of` is "normalizer" or "decoder", for messages.
  RewriteLimits(const char* of, std::string_view text, RegexBudget& steps)
      : component(of), text_bytes(text.size()), budget(steps) {}

  // InputError: a step makes a text of more than kLeast + kMostGrowth * text_bytes.
  void check(size_t bytes) const;

  const char* component;
  size_t text_bytes;
  RegexBudget& budget;  // of the patterns
};

class Replacement {
 public:
  // {"pattern": {"String": " "} or {"Regex": "…"}, "content": "▁"}
  explicit Replacement(const nlohmann::json& description);
  Replacement(std::string_view pattern, std::string content)
      : pattern_(Regex::literal(pattern)), content_(std::move(content)) {}

  // False if there is nothing to replace; `out` is then unchanged or empty. REQUIRES: valid UTF-8.
  // InputError: a limit is exceeded.
  [[nodiscard]] bool try_apply(std::string_view text, const RewriteLimits& limits,
                               std::string& out);

 private:
  Regex pattern_;
  std::string content_;
};

}  // namespace tlt::tokenizer

// Replacement: the step Replace of a tokenizer.json's normalizer or decoder: replaces every
// occurrence of a string or match of a regular expression.
//
// Threading  one copy per thread if the pattern is a regular expression (it keeps match state).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/regex.h"

namespace tlt::tokenizer {

class Replacement {
 public:
  // {"pattern": {"String": " "} or {"Regex": "…"}, "content": "▁"}
  explicit Replacement(const nlohmann::json& description);
  Replacement(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  // False if there is nothing to replace; `out` is then unchanged or empty. REQUIRES: valid UTF-8.
  [[nodiscard]] bool try_apply(std::string_view text, std::string& out);

 private:
  std::string pattern_;         // not empty, or …
  std::optional<Regex> regex_;  // … this
  std::string content_;
};

}  // namespace tlt::tokenizer

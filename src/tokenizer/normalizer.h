// Normalizer: changes a text before it is split into words, by the "normalizer" of a
// tokenizer.json: NFC, Prepend, Replace, and Sequences of these. Any other type is an InputError
// that names it.
//
// Threading  one copy per thread (it keeps match state); copies share the compiled patterns.
//
//   Normalizer normalizer(json.at("normalizer"));   // Llama 2: Prepend "▁", Replace " " by "▁"
//   std::string buffer;
//   RegexBudget budget("a b");
//   normalizer.apply("a b", budget, buffer) == "▁a▁b"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/replacement.h"

namespace tlt::tokenizer {

class Normalizer {
 public:
  // Changes nothing, as for a null description.
  Normalizer() = default;
  explicit Normalizer(const nlohmann::json& description);

  // The text itself if nothing changes, else the buffer with the new text. REQUIRES: valid UTF-8;
  // the buffer does not own the text. InputError: the budget is spent, or the new text is more than
  // RewriteLimits allow.
  std::string_view apply(std::string_view text, RegexBudget& budget, std::string& buffer);

 private:
  struct Step {
    bool is_nfc = false;
    std::string prefix = {};  // added at the beginning of a text that is not empty
    std::optional<Replacement> replacement = {};
  };

  void add_steps(const nlohmann::json& description);
  static bool try_change(Step& step, std::string_view text, const RewriteLimits& limits,
                         std::string& out);

  std::vector<Step> steps_;
  std::string spare_;
};

}  // namespace tlt::tokenizer

// Regex: a pattern of a tokenizer.json. The Hugging Face library matches those with Oniguruma (Ruby
// syntax); this class uses PCRE2 and its JIT. A construct that the two interpret differently is
// rewritten (\s is the Unicode property White_Space) or rejected with an InputError (\w, \b, ^, $,
// …). A pattern like `[a]*b|a` takes n^2 steps on a text; matching counts them and ends with an
// InputError when the text's RegexBudget is spent.
//
// Oniguruma's letters and numbers are those of Unicode 16, PCRE2's may be those of 14. A text that
// may contain newer ones is matched with a second form of the pattern that lists them, which is
// half as fast.
//
// Threading  copies share the compiled code and own their match state: one copy per thread.
//
//   Regex digits(R"(\p{N}{1,3})");
//   RegexBudget budget(text);
//   digits.for_each_match(text, budget, [&](size_t begin, size_t end) {
//     use(text.substr(begin, end - begin));
//   });
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace tlt::tokenizer {

// The steps that all patterns together may take on one text. A step is the test of one byte, about
// a nanosecond; published tokenizers take about 20 for a byte.
struct RegexBudget {
  static constexpr int64_t kStepsPerByte = 256, kLeast = 4096;

  explicit RegexBudget(std::string_view text) : steps(kLeast + kStepsPerByte * std::ssize(text)) {}

  int64_t steps;  // left
};

class Regex {
 public:
  explicit Regex(std::string_view pattern);

  // A regex that matches exactly this text, in linear time.
  static Regex literal(std::string_view text);

  // From {"String": "a literal"} or {"Regex": "a pattern"}.
  static Regex read(const nlohmann::json& description);

  // From a pattern of this program, in PCRE2's syntax. Its steps are not counted.
  static Regex from_pcre2(const std::string& pattern);

  Regex(const Regex& other);
  Regex& operator=(const Regex&) = delete;
  Regex(Regex&&) = default;
  Regex& operator=(Regex&&) = default;

  // Calls visit(begin, end) for each match, in bytes, from left to right. After an empty match the
  // search continues one character later. REQUIRES: valid UTF-8. InputError: the budget is spent.
  template <class Visit>
  void for_each_match(std::string_view text, RegexBudget& budget, Visit&& visit) {
    const Code* code = code_for(text);
    size_t from = 0;
    while (from < text.size()) {
      const auto match =
          code == nullptr ? find_literal(text, from) : find(*code, text, from, budget);
      if (!match) return;
      visit(match->begin, match->end);
      from = match->end;
      if (match->begin == match->end && from < text.size())
        from += next_utf8(text.substr(from)).bytes;
    }
  }

 private:
  struct Match {
    size_t begin, end;
  };
  struct Code;
  struct Scratch;
  struct Free {
    void operator()(Scratch* scratch) const;
  };
  Regex() = default;
  explicit Regex(std::shared_ptr<const Code> code, std::shared_ptr<const Code> newer_code);

  const Code* code_for(std::string_view text) const;  // nullptr: a literal
  std::optional<Match> find_literal(std::string_view text, size_t from) const;
  std::optional<Match> find(const Code& code, std::string_view text, size_t from,
                            RegexBudget& budget);

  std::string literal_;  // or, of a pattern:
  std::shared_ptr<const Code> code_, newer_code_;
  std::unique_ptr<Scratch, Free> scratch_;
};

// The pattern in PCRE2's syntax, with or without the letters and numbers newer than its tables, and
// with or without the callouts that count steps.
std::string to_pcre2(std::string_view pattern, bool with_newer = false, bool is_metered = false);

}  // namespace tlt::tokenizer

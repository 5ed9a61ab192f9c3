// PreTokenizer: splits a text into the words that byte-pair merges never cross, by the
// "pre_tokenizer" of a tokenizer.json: Split, ByteLevel, Digits, Metaspace, and Sequences of these.
// Any other type is an InputError that names it.
//
// Not here   the byte-level alphabet: words are the text's own bytes (bpe.h converts its
//            vocabulary).
// Threading  one copy per thread (it keeps match state); copies share the compiled patterns.
//
//   PreTokenizer splitter(json.at("pre_tokenizer"));
//   std::vector<std::string_view> words;
//   RegexBudget budget("12 apples");
//   splitter.split("12 apples", /*begins_text=*/true, budget, words);   // e.g. "1", "2", " apples"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/metaspace.h"
#include "tokenizer/regex.h"

namespace tlt::tokenizer {

class PreTokenizer {
 public:
  // The whole text is one word, as for a null description.
  PreTokenizer() = default;
  explicit PreTokenizer(const nlohmann::json& description);

  // Whether words are byte strings (a ByteLevel step) or UTF-8 text.
  bool is_byte_level() const { return is_byte_level_; }

  // Replaces `words` by the words of the text, in order; none is empty. They point into the text or
  // into this object and are valid until the next call. `begins_text`: nothing precedes the text,
  // not even an added token. REQUIRES: valid UTF-8. InputError: the budget is spent.
  void split(std::string_view text, bool begins_text, RegexBudget& budget,
             std::vector<std::string_view>& words);

 private:
  // Treatment of a match: a word, nothing, a word together with adjacent matches, or part of the
  // previous or next word.
  enum class Behavior { kIsolated, kRemoved, kContiguous, kWithPrevious, kWithNext };
  struct Stretch {
    size_t begin, end;
    bool is_match;
  };
  struct Step {
    std::optional<Regex> regex;  // absent: no split
    Behavior behavior = Behavior::kIsolated;
    bool is_inverted = false;  // the parts between matches are the matches
    bool adds_space = false;   // before a piece that does not start with one
    std::optional<Metaspace> metaspace = {};
  };

  void add_steps(const nlohmann::json& description);
  void add_split(const nlohmann::json& description);
  void add_metaspace(const nlohmann::json& description);
  void run_step(Step& step, std::string_view piece, bool begins_text, RegexBudget& budget,
                std::vector<std::string_view>& pieces);
  void run_metaspace(const Metaspace& metaspace, std::string_view piece, bool begins_text,
                     std::vector<std::string_view>& pieces);
  void find_stretches(Step& step, std::string_view piece, RegexBudget& budget);
  void merge_stretches(Behavior behavior);

  std::vector<Step> steps_;
  bool is_byte_level_ = false;

  std::vector<std::string_view> pieces_;  // between two steps
  std::deque<std::string> spaced_;        // pieces that differ from the text
  std::vector<Stretch> stretches_;        // of one piece
};

}  // namespace tlt::tokenizer

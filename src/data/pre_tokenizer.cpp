// SPDX-License-Identifier: Apache-2.0
#include "data/pre_tokenizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"

namespace tlt::data {
namespace {

constexpr size_t kMaxSteps = 32;

// The split that ByteLevel does by itself: GPT-2's.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Regex regex_of(const nlohmann::json& pattern) {
  if (pattern.contains("String")) return Regex::literal(pattern.at("String").get<std::string>());
  return Regex(pattern.at("Regex").get<std::string>());
}

}  // namespace

PreTokenizer::PreTokenizer(const nlohmann::json& description) {
  if (!description.is_null()) add_steps(description);
}

void PreTokenizer::add_steps(const nlohmann::json& description) {
  TLT_CHECK_INPUT(!is_byte_level_, "pre_tokenizer: a step after ByteLevel is not supported");
  TLT_CHECK_INPUT(steps_.size() < kMaxSteps, "pre_tokenizer: more than ", kMaxSteps, " steps");
  const auto type = description.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const auto& part : description.at("pretokenizers")) add_steps(part);
  } else if (type == "Split") {
    add_split(description);
  } else if (type == "Digits") {
    steps_.push_back(
        {.regex = Regex(description.value("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)")});
  } else if (type == "ByteLevel") {
    is_byte_level_ = true;
    Step step{.regex = std::nullopt, .adds_space = description.value("add_prefix_space", true)};
    if (description.value("use_regex", true)) step.regex = Regex(kGpt2Pattern);
    if (step.regex || step.adds_space) steps_.push_back(std::move(step));
  } else {
    throw InputError("pre_tokenizer of type " + type +
                     " is not supported; known: Split, ByteLevel, Digits, Sequence");
  }
}

void PreTokenizer::add_split(const nlohmann::json& description) {
  const auto behavior = description.at("behavior").get<std::string>();
  const bool is_inverted = description.value("invert", false);  // only Removed asks what a match is
  TLT_CHECK_INPUT(behavior == "Isolated" || behavior == "Removed",
                  "pre_tokenizer: Split with behavior ", behavior,
                  " is not supported; known: Isolated, Removed");
  const bool is_removed = behavior == "Removed";
  steps_.push_back({.regex = regex_of(description.at("pattern")),
                    .keeps_matches = !is_removed || is_inverted,
                    .keeps_gaps = !is_removed || !is_inverted});
}

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& words) {
  words.clear();
  spaced_.clear();
  if (text.empty()) return;
  if (steps_.empty()) {
    words.push_back(text);
    return;
  }
  run_step(steps_[0], text, words);
  for (size_t i = 1; i < steps_.size(); ++i) {
    std::swap(words, pieces_);
    words.clear();
    for (const std::string_view piece : pieces_) run_step(steps_[i], piece, words);
  }
}

void PreTokenizer::run_step(Step& step, std::string_view piece,
                            std::vector<std::string_view>& pieces) {
  if (step.adds_space && piece[0] != ' ') piece = spaced_.emplace_back(" ").append(piece);
  if (!step.regex) {
    pieces.push_back(piece);
    return;
  }
  const auto emit = [&](size_t begin, size_t end, bool is_kept) {
    if (is_kept && begin < end) pieces.push_back(piece.substr(begin, end - begin));
  };
  size_t done = 0;
  step.regex->for_each_match(piece, [&](size_t begin, size_t end) {
    emit(done, begin, step.keeps_gaps);
    emit(begin, end, step.keeps_matches);
    done = end;
  });
  emit(done, piece.size(), step.keeps_gaps);
}

}  // namespace tlt::data

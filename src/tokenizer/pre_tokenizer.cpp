// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"

namespace tlt::tokenizer {
namespace {

constexpr size_t kMaxPreTokenizers = 16;

// The pattern that ByteLevel uses by itself: GPT-2's.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// In the order of PreTokenizer::Behavior.
constexpr std::array<std::string_view, 5> kBehaviors = {"Isolated", "Removed", "Contiguous",
                                                        "MergedWithPrevious", "MergedWithNext"};

}  // namespace

PreTokenizer::PreTokenizer(const nlohmann::json& description) {
  if (!description.is_null()) add_steps(description);
}

void PreTokenizer::add_steps(const nlohmann::json& description) {
  TLT_CHECK_INPUT(!is_byte_level_, "pre_tokenizer: a step after ByteLevel is not supported");
  TLT_CHECK_INPUT(steps_.size() < kMaxPreTokenizers, "pre_tokenizer: more than ", kMaxPreTokenizers,
                  " steps");
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
  } else if (type == "Metaspace") {
    add_metaspace(description);
  } else {
    throw InputError("pre_tokenizer of type " + type +
                     " is not supported; known: Split, ByteLevel, Digits, Metaspace, Sequence");
  }
}

void PreTokenizer::add_split(const nlohmann::json& description) {
  const auto name = description.at("behavior").get<std::string>();
  const auto known = std::ranges::find(kBehaviors, name);
  TLT_CHECK_INPUT(known != kBehaviors.end(), "pre_tokenizer: Split with behavior ", name,
                  " is not supported; known: ",
                  "Isolated, Removed, Contiguous, MergedWithPrevious, MergedWithNext");
  steps_.push_back({.regex = Regex::read(description.at("pattern")),
                    .behavior = static_cast<Behavior>(known - kBehaviors.begin()),
                    .is_inverted = description.value("invert", false)});
}

void PreTokenizer::add_metaspace(const nlohmann::json& description) {
  const Metaspace metaspace(description);
  const bool asks_for_begin = metaspace.scheme == Metaspace::Scheme::kFirst;
  for (const Step& step : steps_) {
    TLT_CHECK_INPUT(!step.metaspace, "pre_tokenizer: a second Metaspace is not supported");
    TLT_CHECK_INPUT(
        !asks_for_begin || step.behavior != Behavior::kRemoved,
        "pre_tokenizer: Metaspace with prepend_scheme first after a Split with behavior "
        "Removed is not supported");
  }
  steps_.push_back({.regex = std::nullopt, .metaspace = metaspace});
}

void PreTokenizer::split(std::string_view text, bool begins_text, RegexBudget& budget,
                         std::vector<std::string_view>& words) {
  words.clear();
  spaced_.clear();
  if (text.empty()) return;
  words.push_back(text);
  for (Step& step : steps_) {
    std::swap(words, pieces_);
    words.clear();
    bool is_first = begins_text;
    for (const std::string_view piece : pieces_)
      run_step(step, piece, std::exchange(is_first, false), budget, words);
  }
}

void PreTokenizer::run_step(Step& step, std::string_view piece, bool begins_text,
                            RegexBudget& budget, std::vector<std::string_view>& pieces) {
  if (step.metaspace) {
    run_metaspace(*step.metaspace, piece, begins_text, pieces);
    return;
  }
  if (step.adds_space && piece[0] != ' ') piece = spaced_.emplace_back(" ").append(piece);
  if (!step.regex) {
    pieces.push_back(piece);
    return;
  }
  find_stretches(step, piece, budget);
  if (step.behavior >= Behavior::kContiguous) merge_stretches(step.behavior);
  for (const Stretch& stretch : stretches_) {
    const bool is_kept = step.behavior != Behavior::kRemoved || !stretch.is_match;
    if (is_kept && stretch.begin < stretch.end)
      pieces.push_back(piece.substr(stretch.begin, stretch.end - stretch.begin));
  }
}

void PreTokenizer::find_stretches(Step& step, std::string_view piece, RegexBudget& budget) {
  stretches_.clear();
  size_t done = 0;
  step.regex->for_each_match(piece, budget, [&](size_t begin, size_t end) {
    if (done < begin) stretches_.push_back({done, begin, step.is_inverted});
    stretches_.push_back({begin, end, !step.is_inverted});
    done = end;
  });
  if (done < piece.size()) stretches_.push_back({done, piece.size(), step.is_inverted});
}

// Among consecutive matches, only the one adjacent to the gap is merged with it.
void PreTokenizer::merge_stretches(Behavior behavior) {
  const bool goes_backward = behavior == Behavior::kWithNext;
  if (goes_backward) std::ranges::reverse(stretches_);
  size_t count = 0;
  bool was_match = false;
  for (const Stretch stretch : stretches_) {
    const bool is_joined = behavior == Behavior::kContiguous ? stretch.is_match == was_match
                                                             : stretch.is_match && !was_match;
    was_match = stretch.is_match;
    if (count == 0 || !is_joined) {
      stretches_[count++] = stretch;
    } else {
      stretches_[count - 1].begin = std::min(stretches_[count - 1].begin, stretch.begin);
      stretches_[count - 1].end = std::max(stretches_[count - 1].end, stretch.end);
    }
  }
  stretches_.resize(count);
  if (goes_backward) std::ranges::reverse(stretches_);
}

void PreTokenizer::run_metaspace(const Metaspace& metaspace, std::string_view piece,
                                 bool begins_text, std::vector<std::string_view>& pieces) {
  const std::string& mark = metaspace.mark;
  const bool begins_with_mark = piece[0] == ' ' || piece.starts_with(mark);
  const bool adds_mark =
      !begins_with_mark && (metaspace.scheme == Metaspace::Scheme::kAlways ||
                            (metaspace.scheme == Metaspace::Scheme::kFirst && begins_text));
  std::string& marked = spaced_.emplace_back(adds_mark ? mark : "");
  for (size_t at = 0; at < piece.size();) {
    const size_t space = std::min(piece.find(' ', at), piece.size());
    marked.append(piece, at, space - at);
    if (space < piece.size()) marked += mark;
    at = space + 1;
  }
  std::string_view rest = marked;
  while (metaspace.splits && !rest.empty()) {
    const size_t end = std::min(rest.find(mark, 1), rest.size());
    pieces.push_back(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  if (!rest.empty()) pieces.push_back(rest);
}

}  // namespace tlt::tokenizer

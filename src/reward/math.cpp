// SPDX-License-Identifier: Apache-2.0
#include "reward/math.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "math_equal/math_equal.h"

namespace tlt::reward {

namespace {

using MaybeText = std::optional<std::string_view>;

// Content of the last closed box, including boxes within it. One pass over the braces.
MaybeText last_boxed(std::string_view text) {
  struct Open {
    size_t begin = 0;
    bool is_box = false;
  };
  std::vector<Open> open;
  MaybeText last;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;  // \{ and \} are not braces
    } else if (text[i] == '{') {
      const std::string_view before = text.substr(0, i);
      open.push_back({i + 1, before.ends_with("\\boxed") || before.ends_with("\\fbox")});
    } else if (text[i] == '}' && !open.empty()) {
      const auto [begin, is_box] = open.back();
      open.pop_back();
      if (is_box) last = text.substr(begin, i - begin);
    }
  }
  return last;
}

bool same_letters(std::string_view text, std::string_view lower) {
  return std::ranges::equal(text, lower,
                            [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
}

size_t last_place(std::string_view text, std::string_view lower) {
  for (size_t at = text.size() + 1 - std::min(lower.size(), text.size() + 1); at-- > 0;) {
    if (same_letters(text.substr(at, lower.size()), lower)) return at;
  }
  return text.npos;
}

// The text between the last pair of dollars, of `\(` and `\)` or similar.
MaybeText last_formula(std::string_view text) {
  for (const auto& [open, close] : {std::pair{"\\(", "\\)"}, {"\\[", "\\]"}}) {
    const size_t end = text.rfind(close);
    const size_t begin = end == text.npos ? end : text.rfind(open, end);
    if (begin != text.npos) return text.substr(begin + 2, end - begin - 2);
  }
  const auto dollar_before = [&](size_t end) {
    size_t at = text.rfind('$', end);
    while (at != text.npos && at > 0 && text[at - 1] == '\\') at = text.rfind('$', at - 1);
    return at;
  };
  size_t end = dollar_before(text.npos);
  while (end != text.npos && end > 0) {
    const size_t begin = dollar_before(end - 1);
    if (begin == text.npos) return std::nullopt;
    const std::string_view formula = trimmed(text.substr(begin + 1, end - begin - 1));
    if (!formula.empty()) return formula;
    end = begin;  // the end of $$
  }
  return std::nullopt;
}

MaybeText last_number(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kNumber = "0123456789.,/";
  const size_t last = text.find_last_of(kDigits);
  if (last == text.npos) return std::nullopt;
  size_t begin = text.find_last_not_of(kNumber, last) + 1;  // npos + 1 == 0
  begin = text.find_first_not_of(",/", begin);
  if (begin > 0 && text[begin - 1] == '-') --begin;
  const bool has_percent = last + 1 < text.size() && text[last + 1] == '%';
  return text.substr(begin, last + 1 - begin + (has_percent ? 1 : 0));
}

// The text after the last "answer is", to the end of its line or sentence.
MaybeText after_announcement(std::string_view text) {
  size_t begin = text.npos;
  for (const std::string_view words : {"answer is", "answer:"}) {
    const size_t at = last_place(text, words);
    if (at != text.npos && (begin == text.npos || at + words.size() > begin)) {
      begin = at + words.size();
    }
  }
  if (begin == text.npos) return std::nullopt;
  std::string_view rest = text.substr(begin);
  while (!rest.empty() && std::string_view(" :*\n\t").find(rest[0]) != std::string_view::npos) {
    rest.remove_prefix(1);
  }
  rest = rest.substr(0, std::min(rest.find('\n'), rest.find(". ")));
  while (rest.ends_with('*') || rest.ends_with('.')) rest.remove_suffix(1);
  rest = trimmed(rest);
  if (rest.empty()) return std::nullopt;
  const MaybeText formula = last_formula(rest);
  return formula ? formula : rest;
}

// A ground truth, which may be a whole solution.
std::string_view truth_of(std::string_view ground_truth) {
  return last_boxed(ground_truth).value_or(trimmed(ground_truth));
}

}  // namespace

MaybeText try_math_answer(std::string_view response, MathMethod method) {
  if (const MaybeText boxed = last_boxed(response)) return boxed;
  if (method == MathMethod::kStrict) return std::nullopt;
  if (const MaybeText announced = after_announcement(response)) return announced;
  if (const MaybeText formula = last_formula(response)) return formula;
  return last_number(response);
}

RewardResult MathReward::score(const RewardInput& input) const {
  const MaybeText answer = try_math_answer(input.response, method_);
  return {
      .score = answer && math_equal::math_equal(*answer, truth_of(input.ground_truth)) ? 1.0 : 0.0,
      .answer = std::string(trimmed(answer.value_or("")))};
}

void MathReward::check_row(const RewardInput& row) const {
  TLT_CHECK_INPUT(!trimmed(truth_of(row.ground_truth)).empty(),
                  "the ground truth is empty; the reward math needs an answer such as "
                  "`\\frac{1}{2}`, or a solution with `\\boxed{\\frac{1}{2}}`");
}

}  // namespace tlt::reward

// SPDX-License-Identifier: Apache-2.0
#include "reward/gsm8k.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace tlt::reward {

namespace {

constexpr size_t kTailCharacters = 300;
constexpr std::string_view kNumberCharacters = "0123456789.,";
constexpr std::string_view kMark = "#### ";

// The last `characters` code points of a UTF-8 text.
std::string_view tail(std::string_view text, size_t characters) {
  size_t begin = text.size();
  while (begin > 0 && characters > 0) {
    --begin;
    const bool starts_character = (static_cast<unsigned char>(text[begin]) & 0xC0) != 0x80;
    if (starts_character) --characters;
  }
  return text.substr(begin);
}

std::string without_commas(std::string_view text) {
  std::string kept(text);
  std::erase(kept, ',');
  return kept;
}

// -?[0-9.,]+ at the start of `text`; empty if none.
std::string_view leading_number(std::string_view text) {
  const size_t sign = text.starts_with('-') ? 1 : 0;
  const size_t end = std::min(text.find_first_not_of(kNumberCharacters, sign), text.size());
  return end > sign ? text.substr(0, end) : std::string_view();
}

std::optional<std::string> marked_number(std::string_view text) {
  for (size_t at = text.rfind(kMark); at != text.npos; at = text.rfind(kMark, at - 1)) {
    const std::string_view number = leading_number(text.substr(at + kMark.size()));
    if (!number.empty()) return without_commas(number);
    if (at == 0) break;
  }
  return std::nullopt;
}

std::optional<std::string> last_plain_number(std::string_view text) {
  while (true) {
    const size_t last = text.find_last_of(kNumberCharacters);
    if (last == text.npos) return std::nullopt;
    text = text.substr(0, last + 1);
    size_t begin = text.find_last_not_of(kNumberCharacters) + 1;  // npos + 1 == 0
    if (begin > 0 && text[begin - 1] == '-') --begin;
    if (text.substr(begin) != ".") return std::string(text.substr(begin));
    text = text.substr(0, begin);
  }
}

// The number of a row, which may be a whole GSM8K answer.
std::string true_number(std::string_view ground_truth) {
  if (ground_truth.find(kMark) == ground_truth.npos) return std::string(ground_truth);
  return marked_number(ground_truth).value_or("");
}

}  // namespace

RewardResult Gsm8kReward::score(const RewardInput& input) const {
  const std::string_view end = tail(input.response, kTailCharacters);
  const auto answer = method_ == Gsm8kMethod::kStrict ? marked_number(end) : last_plain_number(end);
  return {.score = answer && *answer == true_number(input.ground_truth) ? 1.0 : 0.0,
          .answer = answer.value_or("")};
}

void Gsm8kReward::check_row(const RewardInput& row) const {
  const std::string number = true_number(row.ground_truth);
  const bool is_number = !number.empty() && leading_number(number) == number;
  // Only the flexible method leaves commas in the response's number.
  const bool may_have_commas = method_ == Gsm8kMethod::kFlexible;
  TLT_CHECK_INPUT(
      is_number && (may_have_commas || without_commas(number) == number), "the ground truth `",
      row.ground_truth,
      "` is not a number as the reward gsm8k reads it from a response, so none could "
      "score; it needs `42`, without commas, or an answer that ends in `#### 42` (leave "
      "data.answer_after out)");
}

}  // namespace tlt::reward

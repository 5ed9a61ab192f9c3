// SPDX-License-Identifier: Apache-2.0
#include "reward/countdown.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "base/json_limits.h"
#include "base/text.h"
#include "math_equal/arithmetic.h"

namespace tlt::reward {

namespace {

constexpr double kFormatScore = 0.1;  // of a wrong <answer>; TinyZero's

constexpr std::string_view kOpen = "<answer>", kClose = "</answer>";

std::optional<int64_t> try_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// `3,4,6:24`
std::optional<CountdownTask> try_read_text(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == text.npos) return std::nullopt;
  const auto target = try_integer(text.substr(colon + 1));
  if (!target) return std::nullopt;
  CountdownTask problem{.target = *target};
  for (std::string_view rest = text.substr(0, colon);;) {
    const size_t comma = rest.find(',');
    const auto number = try_integer(rest.substr(0, comma));
    if (!number) return std::nullopt;
    problem.numbers.push_back(*number);
    if (comma == rest.npos) return problem;
    rest.remove_prefix(comma + 1);
  }
}

std::optional<CountdownTask> try_read_json(const nlohmann::ordered_json& object) {
  if (!object.is_object()) return std::nullopt;
  const auto numbers = object.find("numbers"), target = object.find("target");
  if (numbers == object.end() || !numbers->is_array() || numbers->empty()) return std::nullopt;
  if (target == object.end() || !target->is_number_integer()) return std::nullopt;
  CountdownTask problem{.target = target->get<int64_t>()};
  for (const auto& number : *numbers) {
    if (!number.is_number_integer()) return std::nullopt;
    problem.numbers.push_back(number.get<int64_t>());
  }
  return problem;
}

std::optional<CountdownTask> try_read(const RewardInput& row) {
  const std::string_view text = trimmed(row.ground_truth);
  if (text.starts_with('{')) return try_read_json(parse_limited_json(text));
  if (!text.empty()) return try_read_text(text);
  return row.extra_info == nullptr ? std::nullopt : try_read_json(*row.extra_info);
}

// Content of the last `<answer>…</answer>` of the last line, matched from the left like a regex.
std::optional<std::string_view> try_last_answer(std::string_view text) {
  text = text.substr(text.rfind('\n') + 1);  // npos + 1 == 0
  std::optional<std::string_view> answer;
  while (true) {
    const size_t open = text.find(kOpen);
    if (open == text.npos) return answer;
    const size_t begin = open + kOpen.size(), end = text.find(kClose, begin);
    if (end == text.npos) return answer;
    answer = text.substr(begin, end - begin);
    text.remove_prefix(end + kClose.size());
  }
}

// Everything after the first `<answer>` of `…</think><answer>EXPRESSION</answer><eos>`: it includes
// a second `<answer>`, and `<` is not part of an expression.
std::optional<std::string_view> try_only_answer(std::string_view text) {
  constexpr std::string_view kEnd = "<eos>", kThought = "</think>";
  if (text.ends_with(kEnd)) text.remove_suffix(kEnd.size());  // some decoders drop the stop token
  if (!text.ends_with(kClose)) return std::nullopt;
  text.remove_suffix(kClose.size());
  const size_t open = text.find(kOpen);
  if (open == text.npos) return std::nullopt;
  if (!text.substr(0, open).ends_with(kThought)) return std::nullopt;
  return text.substr(open + kOpen.size());
}

}  // namespace

CountdownTask countdown_task(const RewardInput& row) {
  auto problem = try_read(row);
  TLT_CHECK_INPUT(problem || !trimmed(row.ground_truth).empty(),
                  "no countdown problem; data.answer_key names a field like `3,4,6:24`, or the row "
                  "has `numbers` and `target`");
  TLT_CHECK_INPUT(
      problem, "the ground truth `", row.ground_truth,
      "` is not a countdown problem; write `3,4,6:24` or {\"numbers\": [3, 4, 6], \"target\": 24}");
  std::sort(problem->numbers.begin(), problem->numbers.end());
  return std::move(*problem);
}

bool solves(const CountdownTask& problem, std::string_view text) {
  auto expression = math_equal::try_evaluate(text);
  if (!expression || expression->value != math_equal::Rational(problem.target)) return false;
  std::sort(expression->numbers.begin(), expression->numbers.end());
  return expression->numbers == problem.numbers;
}

RewardResult CountdownReward::score(const RewardInput& input) const {
  const CountdownTask problem = countdown_task(input);
  const auto answer = try_last_answer(input.response);
  if (!answer) return {};
  return {.score = solves(problem, trimmed(*answer)) ? 1.0 : kFormatScore};
}

RewardResult CountdownTraceReward::score(const RewardInput& input) const {
  TLT_CHECK(input.raw_response.size() >= input.response.size(),
            "countdown_trace reads raw_response, the text with special tokens, and it is missing");
  const CountdownTask problem = countdown_task(input);
  if (input.truncated) return {};
  const auto answer = try_only_answer(input.raw_response);
  if (!answer || answer->find_first_not_of("0123456789+-*/()") != answer->npos) return {};
  return {.score = solves(problem, *answer) ? 1.0 : 0.0};
}

}  // namespace tlt::reward

// SPDX-License-Identifier: Apache-2.0
#include "drafter/strategy.h"

#include <array>
#include <charconv>

#include "base/check.h"

namespace tlt::drafter {
namespace {

constexpr int64_t kLargest = 9999;  // of each number: prevents overflow in scored_nodes()

constexpr std::string_view kAccepted =
    "give depth_width_verify such as 8_4_48 (8 levels, 4 children, 48 tokens to verify), or off";

// Parses the three numbers between the underscores; false when `text` is anything else.
bool split(std::string_view text, std::array<int64_t, 3>& numbers) {
  const char* begin = text.data();
  const char* const end = begin + text.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (begin == end || *begin++ != '_')) return false;
    if (begin == end || *begin < '0' || *begin > '9') return false;  // no sign
    const auto [rest, error] = std::from_chars(begin, end, numbers[i]);
    if (error != std::errc()) return false;
    begin = rest;
  }
  return begin == end;
}

}  // namespace

int64_t scored_nodes(const Strategy& strategy) {
  if (strategy.depth < 1) return 0;
  return strategy.width + (strategy.depth - 1) * strategy.width * strategy.width;
}

Strategy parse_strategy(std::string_view text) {
  if (text == "off") return kOff;
  std::array<int64_t, 3> numbers{};
  TLT_CHECK_INPUT(split(text, numbers), "strategy \"", text, "\" is not three integers; ",
                  kAccepted);
  const Strategy strategy{.depth = numbers[0], .width = numbers[1], .verify = numbers[2]};
  for (const int64_t number : numbers)
    TLT_CHECK_INPUT(number >= 1 && number <= kLargest, "strategy \"", text, "\" has ", number,
                    "; give numbers from 1 to ", kLargest);
  TLT_CHECK_INPUT(strategy.verify >= 2, "strategy \"", text,
                  "\" verifies the last token only; give 2 or more as the third number, or off");
  TLT_CHECK_INPUT(strategy.verify <= scored_nodes(strategy) + 1, "strategy \"", text,
                  "\" verifies more than a tree of this depth and width has; give at most ",
                  scored_nodes(strategy) + 1, " as the third number");
  return strategy;
}

std::string to_string(const Strategy& strategy) {
  if (strategy.is_off()) return "off";
  return std::to_string(strategy.depth) + "_" + std::to_string(strategy.width) + "_" +
         std::to_string(strategy.verify);
}

}  // namespace tlt::drafter

// SPDX-License-Identifier: Apache-2.0
#include "reward/shaping.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace tlt::reward {
namespace {

constexpr std::string_view kBlanks = " \t\n\r\f\v";

std::vector<std::string> lower_words_of(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = text.find_first_not_of(kBlanks); begin != text.npos;) {
    const size_t end = std::min(text.find_first_of(kBlanks, begin), text.size());
    std::string& word = words.emplace_back(text.substr(begin, end - begin));
    for (char& c : word)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    begin = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

}  // namespace

RewardResult LengthReward::score(const RewardInput& input) const {
  const int64_t free = input.max_response_tokens - buffer_;
  const auto excess = static_cast<double>(input.response_tokens - free);
  return {.score = std::min(0.0, -excess / static_cast<double>(buffer_))};
}

void LengthReward::check_row(const RewardInput& row) const {
  TLT_CHECK_INPUT(row.max_response_tokens == 0 || buffer_ <= row.max_response_tokens,
                  "reward.overlong_buffer.len is ", buffer_, ", more than the ",
                  row.max_response_tokens, " tokens of data.max_response_length; make it smaller");
}

RewardResult RepetitionReward::score(const RewardInput& input) const {
  const std::vector<std::string> words = lower_words_of(input.response);
  const auto n = static_cast<size_t>(words_);
  if (words.size() < n) return {};
  // Views into `words`, compared word by word.
  const auto less = [&](size_t a, size_t b) {
    return std::lexicographical_compare(words.begin() + static_cast<std::ptrdiff_t>(a),
                                        words.begin() + static_cast<std::ptrdiff_t>(a + n),
                                        words.begin() + static_cast<std::ptrdiff_t>(b),
                                        words.begin() + static_cast<std::ptrdiff_t>(b + n));
  };
  std::set<size_t, decltype(less)> distinct(less);
  const size_t all = words.size() - n + 1;
  for (size_t i = 0; i < all; ++i) distinct.insert(i);
  const double repeated = 1 - static_cast<double>(distinct.size()) / static_cast<double>(all);
  return {.score = repeated > 0 ? -repeated : 0};
}

}  // namespace tlt::reward

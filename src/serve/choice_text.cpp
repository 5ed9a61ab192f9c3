// SPDX-License-Identifier: Apache-2.0
#include "serve/choice_text.h"

#include <algorithm>
#include <utility>

namespace tlt::serve {
namespace {

// Length of the longest end of `text` that begins `stop`.
size_t overlap(std::string_view text, std::string_view stop) {
  size_t size = std::min(text.size(), stop.size() - 1);
  while (!stop.starts_with(text.substr(text.size() - size))) --size;
  return size;
}

}  // namespace

ChoiceText::ChoiceText(const TextRule& rule)
    : rule_(rule), decoder_(rule.tokenizer, rule.skips_special) {}

std::string ChoiceText::push(std::span<const int32_t> tokens,
                             std::optional<rollout::FinishReason> finish) {
  if (finish == rollout::FinishReason::kStop && !tokens.empty() &&
      std::ranges::count(rule_.stop_tokens, tokens.back()) > 0)
    tokens = tokens.first(tokens.size() - 1);
  std::string text;
  for (const int32_t token : tokens) {
    held_ += decoder_.push(token);
    text += release(/*is_last=*/false);
  }
  if (finish) {
    held_ += decoder_.finish();
    text += release(/*is_last=*/true);
  }
  return text;
}

std::string ChoiceText::release(bool is_last) {
  if (is_ended_) return "";
  size_t end = std::string::npos, held = 0;
  for (const std::string& stop : rule_.stop) {
    end = std::min(end, held_.find(stop));
    if (!is_last) held = std::max(held, overlap(held_, stop));
  }
  is_ended_ = end != std::string::npos;
  const size_t bytes = is_ended_ ? end : held_.size() - held;
  std::string text = held_.substr(0, bytes);
  held_.erase(0, bytes);
  return text;
}

}  // namespace tlt::serve

// SPDX-License-Identifier: Apache-2.0
#include "data/prompt_renderer.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/rows.h"

namespace tlt::data {
namespace {

// Takes tokens out until `limit` are left; in the middle as verl does: limit / 2 stay in front.
void cut(std::vector<int32_t>& tokens, int64_t limit, const std::string& where) {
  const int64_t kept_in_front = where == "left" ? 0 : where == "right" ? limit : limit / 2;
  const int64_t surplus = std::ssize(tokens) - limit;
  tokens.erase(tokens.begin() + kept_in_front, tokens.begin() + kept_in_front + surplus);
}

}  // namespace

PromptRenderer::PromptRenderer(const DataOptions& options, Tokenizer tokenizer)
    : options_(options), tokenizer_(std::move(tokenizer)) {
  if (!options_.prompt_template.empty()) template_.emplace(options_.prompt_template);
}

std::string PromptRenderer::text(const nlohmann::json& row, const std::string& place) const {
  const bool is_chatml = options_.chat_template == "chatml";
  if (template_) {
    const std::string text = template_->render(row, place);
    return is_chatml ? to_chatml({{"user", text}}) : text;
  }
  const auto& prompt = require_field(row, options_.prompt_key, place, "data.prompt_key");
  if (prompt.is_string()) {
    const auto text = prompt.get<std::string>();
    return is_chatml ? to_chatml({{"user", text}}) : text;
  }
  const std::vector<Message> messages = messages_of(prompt, place);
  TLT_CHECK_INPUT(is_chatml, place,
                  ": the prompt is a list of messages; set data.chat_template=chatml");
  return to_chatml(messages);
}

std::optional<std::vector<int32_t>> PromptRenderer::try_tokens(const std::string& text,
                                                               const std::string& place) const {
  std::vector<int32_t> tokens = tokenizer_.encode(text);
  TLT_CHECK_INPUT(!tokens.empty(), place, ": the prompt is empty");
  if (std::ssize(tokens) <= options_.max_prompt_length) return tokens;
  if (options_.filter_overlong_prompts) return std::nullopt;
  TLT_CHECK_INPUT(options_.truncation != "error", place, ": the prompt has ", tokens.size(),
                  " tokens and data.max_prompt_length is ", options_.max_prompt_length,
                  "; raise it, or set data.filter_overlong_prompts=true or data.truncation=left");
  cut(tokens, options_.max_prompt_length, options_.truncation);
  return tokens;
}

}  // namespace tlt::data

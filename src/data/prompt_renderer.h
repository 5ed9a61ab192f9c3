// PromptRenderer: renders a data row's prompt or conversation as text and as tokens, by
// DataOptions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "chat_template/chat_template.h"
#include "data/chat_spans.h"
#include "data/data_options.h"
#include "data/prompt_template.h"
#include "tokenizer/tokenizer.h"

namespace tlt::data {

// A conversation of one message.
nlohmann::ordered_json user_message(const std::string& text);

class PromptRenderer {
 public:
  // InputError: data.chat_template names a template that cannot be used.
  PromptRenderer(const DataOptions& options, tokenizer::Tokenizer tokenizer);

  // By data.prompt_key, prompt_template and chat_template; messages are followed by the beginning
  // of the assistant's turn.
  std::string text(const nlohmann::ordered_json& row, const std::string& place) const;

  // The row's prompt as messages, and its tools (null: none), for a conversation that continues.
  // InputError: the prompt is a text that the chat template is not applied to.
  nlohmann::ordered_json messages(const nlohmann::ordered_json& row,
                                  const std::string& place) const;
  nlohmann::ordered_json tools(const nlohmann::ordered_json& row, const std::string& place) const;
  // Renders messages and tools of a chat with data.apply_chat_template_kwargs.
  std::string conversation(chat_template::Chat chat, const std::string& place) const;
  // InputError, beginning with the place: there is no chat template.
  const chat_template::ChatTemplate& require_chat_template(const std::string& place) const;

  // The tokens of a text, truncated by data.truncation if there are more than max_prompt_length. No
  // begin-of-sequence token is added to a template's output, which has its own. nullopt: too long,
  // with data.filter_overlong_prompts. InputError: too long and not to be truncated, or empty.
  std::optional<std::vector<int32_t>> try_tokens(const std::string& text,
                                                 const std::string& place) const;

  // Whether the row's prompt is a text, which data.chat_template=auto does not change, although the
  // model folder has a chat template: rarely intended with a chat model.
  bool leaves_out_template(const nlohmann::ordered_json& row) const;

  // The training rows of a conversation (chat_spans.h) with the row's tools.
  std::vector<ChatTokens> training_rows(const nlohmann::ordered_json& row,
                                        nlohmann::ordered_json messages,
                                        const std::string& place) const;
  // Those of the row's conversation (row_fields.h); nullopt: it has none.
  std::optional<std::vector<ChatTokens>> try_conversation(const nlohmann::ordered_json& row,
                                                          const std::string& place) const;

 private:
  nlohmann::ordered_json prompt_of(const nlohmann::ordered_json& row,
                                   const std::string& place) const;
  nlohmann::ordered_json to_messages(nlohmann::ordered_json prompt, const std::string& place) const;
  bool wraps_text() const;  // whether a prompt that is a text becomes a user message
  chat_template::Chat chat_of(const nlohmann::ordered_json& row, nlohmann::ordered_json messages,
                              const std::string& place) const;

  const DataOptions options_;
  const tokenizer::Tokenizer tokenizer_;
  const nlohmann::ordered_json variables_;  // of every conversation
  std::optional<PromptTemplate> template_;
  std::optional<chat_template::ChatTemplate> chat_template_;
  std::string chat_fault_;  // why there is no template
};

}  // namespace tlt::data

// PromptRenderer: a data row's prompt or conversation as text and as tokens, as DataOptions say.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/chat_spans.h"
#include "data/chat_template.h"
#include "data/data_options.h"
#include "data/prompt_template.h"
#include "data/tokenizer.h"

namespace tlt::data {

class PromptRenderer {
 public:
  // InputError: data.chat_template names a template that cannot be used.
  PromptRenderer(const DataOptions& options, Tokenizer tokenizer);

  // By data.prompt_key, prompt_template and chat_template; messages with the begin of the
  // assistant's turn behind them.
  std::string text(const nlohmann::ordered_json& row, const std::string& place) const;

  // The tokens of a text, cut by data.truncation where there are more than max_prompt_length.
  // A template has written its own begin-of-sequence token: none is added. nullopt: too long, and
  // such rows are left out. InputError: too long and not to be cut, or empty.
  std::optional<std::vector<int32_t>> try_tokens(const std::string& text,
                                                 const std::string& place) const;

  // Whether the row's prompt is a text, which data.chat_template=auto leaves as it is, though the
  // model folder has a chat template: with a chat model this is seldom meant.
  bool leaves_out_template(const nlohmann::ordered_json& row) const;

  // What the row's conversation teaches (chat_spans.h, row_fields.h); nullopt: it has none.
  std::optional<std::vector<ChatTokens>> try_conversation(const nlohmann::ordered_json& row,
                                                          const std::string& place) const;

 private:
  const ChatTemplate& require_chat_template(const std::string& place) const;
  Chat chat_of(const nlohmann::ordered_json& row, nlohmann::ordered_json messages,
               const std::string& place) const;

  const DataOptions options_;
  const Tokenizer tokenizer_;
  const nlohmann::ordered_json variables_;  // of every conversation
  std::optional<PromptTemplate> template_;
  std::optional<ChatTemplate> chat_template_;
  std::string chat_fault_;  // why there is none
};

}  // namespace tlt::data

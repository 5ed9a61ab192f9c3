// TurnRenderer: renders what is new in a conversation as tokens: what the chat template adds to the
// conversation so far for some more messages, and the beginning of the next turn.
//
// The conversation itself is never tokenized again: the model's turns stay as sampled. That needs a
// template with which the longer conversation begins with the shorter one, character by character.
// It is checked at the start, and for each message that is rendered.
//
//   so far    <|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>      (sampled)
//   observe   \n<|im_start|>user\nRight. 2+2?<|im_end|>\n<|im_start|>assistant\n
//
// Not here   which messages (environment_pool.h).
// Threading  constant after construction; any thread.
//
//   TurnRenderer renderer(options, tokenizer, stop_tokens);
//   auto opening = renderer.open({.messages = prompt.messages, .tools = prompt.tools}, added, place);
//   auto observed = renderer.observe({.messages = so_far}, added, last_token, place);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "chat_template/tool_calls.h"
#include "data/prompt_renderer.h"
#include "environment/environment_options.h"
#include "tokenizer/tokenizer.h"

namespace tlt::environment {

class TurnRenderer {
 public:
  // `stop_tokens`: those that end a turn. InputError: there is no chat template, or a conversation
  // does not begin with its first messages as rendered alone.
  TurnRenderer(const data::DataOptions& data, const EnvironmentOptions& options,
               const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> stop_tokens);

  // The prompt of a conversation that the environment gave in place of the row's, as rows with these
  // messages have it. InputError: the template refuses it, or it is too long.
  std::vector<int32_t> prompt(const chat_template::Chat& chat, const std::string& place) const;
  // The tokens between the prompt and the first turn. InputError: the template refuses a message,
  // or is not stable for it.
  std::vector<int32_t> open(const chat_template::Chat& prompt, const nlohmann::ordered_json& added,
                            const std::string& place) const;
  // The tokens between two turns. `chat` ends with the assistant's message, whose last sampled
  // token is `last`.
  std::vector<int32_t> observe(const chat_template::Chat& chat, const nlohmann::ordered_json& added,
                               int32_t last, const std::string& place) const;

  // The assistant's message of a turn that was sampled, with its tool calls as in OpenAI's API.
  nlohmann::ordered_json message(std::span<const int32_t> turn) const;

 private:
  // What `added` and the beginning of a turn add to the rendering of `chat`.
  std::string added_text(chat_template::Chat chat, const nlohmann::ordered_json& added,
                         const std::string& place) const;
  std::string find_closing() const;
  void check_stable() const;

  const data::PromptRenderer renderer_;
  const tokenizer::Tokenizer tokenizer_;
  const std::set<int32_t> stop_tokens_;
  const std::string template_name_;  // data.chat_template
  const chat_template::ToolCallFormat format_;
  const std::string closing_;  // that the template writes after the assistant's text
};

}  // namespace tlt::environment

// SPDX-License-Identifier: Apache-2.0
#include "data/prompt_template.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/rows.h"

namespace tlt::data {
namespace {

constexpr const char* kQwenSystem =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

}  // namespace

PromptTemplate::PromptTemplate(std::string_view format) {
  std::string text;
  for (size_t at = 0; at < format.size(); ++at) {
    const char character = format[at];
    if (character != '{' && character != '}') {
      text.push_back(character);
    } else if (at + 1 < format.size() && format[at + 1] == character) {
      text.push_back(character);
      ++at;
    } else {
      const size_t close = format.find_first_of("{}", at + 1);
      TLT_CHECK_INPUT(character == '{' && close != std::string_view::npos && format[close] == '}' &&
                          close > at + 1,
                      "data.prompt_template: the brace at byte ", at,
                      " is not part of a {field}; write {{ or }} for a brace itself");
      pieces_.push_back({std::exchange(text, {}), false});
      pieces_.push_back({std::string(format.substr(at + 1, close - at - 1)), true});
      at = close;
    }
  }
  pieces_.push_back({text, false});
}

std::string PromptTemplate::render(const nlohmann::json& row, const std::string& place) const {
  std::string text;
  for (const Piece& piece : pieces_) {
    text += piece.is_field ? text_of(require_field(row, piece.text, place, "data.prompt_template"))
                           : piece.text;
  }
  return text;
}

std::vector<Message> messages_of(const nlohmann::json& value, const std::string& place) {
  TLT_CHECK_INPUT(value.is_array() && !value.empty(), place,
                  ": the prompt must be a text or a list of messages");
  std::vector<Message> messages;
  for (const auto& entry : value) {
    const auto* role = find_field(entry, "role");
    const auto* content = find_field(entry, "content");
    TLT_CHECK_INPUT(role && content && role->is_string() && content->is_string(), place,
                    ": a message must be {\"role\": \"…\", \"content\": \"…\"}, not ",
                    entry.dump());
    messages.push_back({role->get<std::string>(), content->get<std::string>()});
    TLT_CHECK_INPUT(messages.back().role == "system" || messages.back().role == "user" ||
                        messages.back().role == "assistant",
                    place, ": role ", role->dump(),
                    " is not known; give system, user or assistant");
  }
  return messages;
}

std::string to_chatml(const std::vector<Message>& messages, bool add_generation_prompt) {
  std::string text;
  const auto add = [&](const std::string& role, const std::string& content) {
    text += "<|im_start|>" + role + "\n" + content + "<|im_end|>\n";
  };
  if (messages.empty() || messages[0].role != "system") add("system", kQwenSystem);
  for (const Message& message : messages) add(message.role, message.content);
  if (add_generation_prompt) text += "<|im_start|>assistant\n";
  return text;
}

}  // namespace tlt::data

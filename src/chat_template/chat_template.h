// ChatTemplate: the chat template of a model folder, which renders a conversation in the model's
// training format. Files, variables and rendering are as in transformers.
//
// Not here   which rows use it (prompt_renderer.h); the loss (chat_spans.h).
// Time       strftime_now prints the time of loading, or that of set_time(): the same in every
//            rendering.
// Threading  constant after loading and set_time(); any function from any thread.
//
//   const auto chat = ChatTemplate::find("models/qwen");          // nullopt: the folder has none
//   chat->render({.messages = row.at("messages"), .add_generation_prompt = true}, place).text;
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/local_time.h"
#include "chat_template/jinja.h"

namespace tlt::chat_template {

struct Chat {
  nlohmann::ordered_json messages;             // a list of objects
  nlohmann::ordered_json tools = nullptr;      // a list of JSON schemas; null: none
  bool add_generation_prompt = false;          // ends with the beginning of the assistant's turn
  nlohmann::ordered_json variables = nullptr;  // an object: more variables, like enable_thinking
};

class ChatTemplate {
 public:
  // Reads chat_template.jinja (with additional_chat_templates/NAME.jinja), else chat_template.json,
  // else tokenizer_config.json; special tokens are from the latter. InputError: the template cannot
  // be used.
  static std::optional<ChatTemplate> find(const std::filesystem::path& folder);

  // Reads the template of a file, with the special tokens of the folder.
  static ChatTemplate read(const std::filesystem::path& file,
                           const std::filesystem::path& tokenizer_folder);

  // Parses a string, which messages call `name`. `special_tokens` like {"bos_token": "<s>"}.
  static ChatTemplate parse(std::string_view source, const std::string& name,
                            nlohmann::ordered_json special_tokens);

  void set_time(const std::tm& now) { now_ = now; }

  // InputError, beginning with the place: not a conversation, or the template rejects it.
  JinjaRendering render(const Chat& chat, const std::string& place, JinjaLimits limits = {}) const;

  // Whether the template for such a conversation marks what the assistant wrote.
  bool marks_generation(const Chat& chat) const;

 private:
  ChatTemplate() : now_(local_time_now()) {}
  const JinjaTemplate& choose(const Chat& chat) const;

  std::map<std::string, JinjaTemplate> templates_;  // by name; a single one is "default"
  nlohmann::ordered_json special_tokens_;
  std::tm now_;
};

// InputError, beginning with the place: not a list of objects, or empty.
void check_messages(const nlohmann::ordered_json& messages, const std::string& place);

// Parses data.apply_chat_template_kwargs, written as TOML or JSON: {enable_thinking = false} or
// {"enable_thinking": false}. InputError: neither.
nlohmann::ordered_json parse_template_variables(const std::string& text);

}  // namespace tlt::chat_template

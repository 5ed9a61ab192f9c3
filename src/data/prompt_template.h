// PromptTemplate: the text of a prompt from the fields of a data row, and ChatML around it.
//
//   PromptTemplate("{question} Let's think step by step.").render(row, place)
//   to_chatml({{"user", text}})   // "<|im_start|>system\nYou are Qwen, …<|im_start|>assistant\n"
//
// Not here   a model's own chat template.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::data {

class PromptTemplate {
 public:
  // `{name}` stands for a field, dots reach into it; `{{` and `}}` are braces. InputError: a brace
  // alone.
  explicit PromptTemplate(std::string_view format);

  // InputError: the row lacks a field.
  std::string render(const nlohmann::json& row, const std::string& place) const;

 private:
  struct Piece {
    std::string text;
    bool is_field;
  };
  std::vector<Piece> pieces_;
};

struct Message {
  std::string role;
  std::string content;
};

// A list of {"role", "content"} objects. InputError, beginning with the place, when it is not.
std::vector<Message> messages_of(const nlohmann::json& value, const std::string& place);

// The messages as Qwen 2.5's template writes them: its default system message when the first is
// none, and, where asked for, the begin of the assistant's turn.
std::string to_chatml(const std::vector<Message>& messages, bool add_generation_prompt = true);

}  // namespace tlt::data

// PromptTemplate: makes the text of a prompt from the fields of a data row.
//
//   PromptTemplate("{question} Let's think step by step.").render(row, place)
//
// Not here   chat templates (chat_template.h).
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
  // `{name}` is replaced by a field, dots select members; `{{` and `}}` are braces. InputError: a
  // single brace.
  explicit PromptTemplate(std::string_view format);

  // InputError: the row lacks a field.
  std::string render(const nlohmann::ordered_json& row, const std::string& place) const;

 private:
  struct Piece {
    std::string text;
    bool is_field;
  };
  std::vector<Piece> pieces_;
};

}  // namespace tlt::data

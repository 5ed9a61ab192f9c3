// SPDX-License-Identifier: Apache-2.0
#include "data/prompt_template.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/rows.h"

namespace tlt::data {
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

std::string PromptTemplate::render(const nlohmann::ordered_json& row,
                                   const std::string& place) const {
  std::string text;
  for (const Piece& piece : pieces_) {
    text += piece.is_field ? text_of(require_field(row, piece.text, place, "data.prompt_template"))
                           : piece.text;
  }
  return text;
}

}  // namespace tlt::data

// Tokens of a Jinja template, with the settings of transformers: trim_blocks, lstrip_blocks, no
// newline at the end, `-` and `+` next to a tag.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::chat_template {

struct JinjaToken {
  enum class Kind {
    kText,           // text between tags
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind;
  int line;
  std::string text;  // of a string: its value
  int64_t integer = 0;
  double number = 0;
};

// All tokens, the last one kEnd. InputError: "NAME: line 3: …".
std::vector<JinjaToken> jinja_tokens(std::string_view source, const std::string& name);

// "NAME: line 3: …"
[[noreturn]] void fail_template(const std::string& name, int line, const std::string& text);

}  // namespace tlt::chat_template

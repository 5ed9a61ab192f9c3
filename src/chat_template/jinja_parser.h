// Parses a Jinja template into its syntax tree and rejects everything that the renderer does not
// support: statements, filters, tests, functions, methods, arguments.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "chat_template/jinja_syntax.h"

namespace tlt::chat_template {

struct JinjaTree {
  JinjaBody body;
  bool marks_generation = false;  // the template has a {% generation %} block
};

// InputError: "NAME: line 3: …".
JinjaTree parse_jinja(std::string_view source, const std::string& name);

}  // namespace tlt::chat_template

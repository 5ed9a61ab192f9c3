// A Jinja template's text to its syntax tree, with everything refused that the renderer does not
// know: tags, filters, tests, functions, methods.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "data/jinja_syntax.h"

namespace tlt::data {

struct JinjaTree {
  JinjaBody body;
  bool marks_generation = false;  // there is a {% generation %}
};

// InputError: "NAME: line 3: …".
JinjaTree parse_jinja(std::string_view source, const std::string& name);

}  // namespace tlt::data

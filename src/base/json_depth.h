// Limits the nesting depth of lists and objects in JSON. Parsing needs no stack for them, but
// copying and writing do: a file of brackets could overflow the stack.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tlt {

inline constexpr int kMaxJsonDepth = 500;

// Whether lists and objects are nested deeper than kMaxJsonDepth. `text` need not be valid JSON.
bool is_too_deep_json(std::string_view text);

// Throws InputError, beginning with `place`, if is_too_deep_json().
void check_json_depth(std::string_view text, const std::string& place);

}  // namespace tlt

// How deep lists and objects of a JSON text may lie within each other. Reading needs no stack for
// them, but copying and writing do: a file of brackets could end the process.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tlt {

inline constexpr int kMaxJsonDepth = 500;

// More than kMaxJsonDepth. `text` may be no JSON.
bool is_too_deep_json(std::string_view text);

// InputError, beginning with `place`, when it is.
void check_json_depth(std::string_view text, const std::string& place);

}  // namespace tlt

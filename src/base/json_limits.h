// Limits of JSON from untrusted files: nesting depth and members of an object.
//
// Parsing needs no stack for nested values, but copying and writing do: a file of brackets could
// overflow the stack. An ordered object is a list, so that of n members takes n^2 comparisons.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tlt {

inline constexpr int kMaxJsonDepth = 500;
inline constexpr int64_t kMaxJsonMembers = 10'000;  // of one object; 10,000 take 0.3 s

// Whether lists and objects are nested deeper than kMaxJsonDepth. `text` need not be valid JSON.
bool is_too_deep_json(std::string_view text);

// Throws InputError, beginning with `place`, if is_too_deep_json().
void check_json_depth(std::string_view text, const std::string& place);

// Throws InputError, beginning with `place`, if the text exceeds either limit.
void check_json_limits(std::string_view text, const std::string& place);

// Parses the text. Returns a discarded value if it is not JSON or exceeds a limit.
nlohmann::ordered_json parse_limited_json(std::string_view text);

}  // namespace tlt

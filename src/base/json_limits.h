// Limits of JSON from untrusted files: nesting depth, members of an object, and values.
//
// Parsing needs no stack for nested values, but copying and writing do: a file of brackets could
// overflow the stack. An ordered object is a list, so that of n members takes n^2 comparisons. A
// value takes up to 100 bytes of memory, and may be one byte of text.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tlt {

inline constexpr int kMaxJsonDepth = 500;
inline constexpr int64_t kMaxJsonMembers = 2'000;  // of one object; a megabyte of those takes 0.7 s
inline constexpr int64_t kMaxJsonValues = 3'000'000;  // of one text; up to 200 MB of memory

// Whether lists and objects are nested deeper than kMaxJsonDepth. `text` need not be valid JSON.
bool is_too_deep_json(std::string_view text);

// Throws InputError, beginning with `place`, if is_too_deep_json().
void check_json_depth(std::string_view text, const std::string& place);

// Throws InputError, beginning with `place`, if the text exceeds a limit.
void check_json_limits(std::string_view text, const std::string& place);

// Parses the text. Returns a discarded value if it is not JSON or exceeds a limit.
nlohmann::ordered_json parse_limited_json(std::string_view text);

}  // namespace tlt

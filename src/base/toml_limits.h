// Limits of TOML from untrusted files: nesting of lists and tables, dots of a key, keys.
//
// The parser (toml++) bounds the nesting of values. It does not bound the tables that a dotted key
// makes, which it walks recursively, and it searches a list of all tables for each key.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tlt {

inline constexpr int64_t kMaxTomlNesting = 64;
inline constexpr int64_t kMaxTomlDots = 16;      // of one key
inline constexpr int64_t kMaxTomlKeys = 10'000;  // tables and lists included

// Whether the text exceeds a limit. It need not be valid TOML: an invalid text that is within the
// limits up to its first error can be parsed.
bool exceeds_toml_limits(std::string_view text);

// Throws InputError, beginning with `place`, if the text exceeds a limit.
void check_toml_limits(std::string_view text, const std::string& place);

}  // namespace tlt

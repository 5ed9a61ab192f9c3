// Formatting of error messages, which may quote strings of any length and with any bytes from a
// file, and of commands to paste.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tlt {

inline constexpr size_t kMaxSentenceBytes = 1000;

// The string in one line of at most kMaxSentenceBytes: control characters become blanks, and the
// middle of a longer string becomes "…", since its end says what to do.
std::string one_sentence(std::string_view text);

// "1 row", "2 rows": `noun` with an s unless count is 1.
std::string counted(int64_t count, std::string_view noun);

// Number of characters to insert, delete, replace or swap with the next to turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);

// Quotes a string as one word of a shell command, if it needs quotes.
std::string shell_word(const std::string& text);

}  // namespace tlt

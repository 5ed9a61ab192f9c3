// Formatting of what is printed: strings of any length and with any bytes from a file, in messages
// and elsewhere, and commands to paste.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tlt {

inline constexpr size_t kMaxSentenceBytes = 1000;
inline constexpr size_t kMaxLogLineBytes = 4000;

// The string in one line of at most `max_bytes`, which may be printed on a terminal or in a log.
// Control characters (C0, DEL, C1), bidirectional controls and other line breaks become \u001b,
// bytes that are not UTF-8 \xff. The middle of a longer string becomes "… (5000 bytes) …", since
// its end says what to do.
std::string one_sentence(std::string_view text, size_t max_bytes = kMaxSentenceBytes);

// The same of a text whose line breaks and tabs are kept.
std::string printable_lines(std::string_view text, size_t max_bytes = std::string::npos);

// "1 row", "2 rows": `noun` with an s unless count is 1.
std::string counted(int64_t count, std::string_view noun);

// Number of characters to insert, delete, replace or swap with the next to turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);

// Quotes a string as one word of a shell command, if it needs quotes.
std::string shell_word(const std::string& text);

}  // namespace tlt

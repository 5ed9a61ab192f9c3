// Sentences of error messages that quote what stands in a file: a text of any length, with any
// bytes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tlt {

inline constexpr size_t kMaxSentenceBytes = 1000;

// The text in one line and not longer than that: control characters are blanks, and of a longer
// text the middle is "…", since its end says what to do.
std::string one_sentence(std::string_view text);

// "1 row", "2 rows": `noun` with an s where there are not one.
std::string counted(int64_t count, std::string_view noun);

}  // namespace tlt

// Functions for UTF-8 that may be invalid or incomplete, and GPT-2's byte-level alphabet, which
// writes any byte string with 256 printable characters (as tokens are written in tokenizer.json).
//
//   std::string text;
//   size_t used = append_lossy(text, "caf\xC3", /*is_last=*/false);   // "caf", used == 3: waits
//   byte_level_text(" a\n") == "ĠaĊ"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tlt {

enum class Utf8Kind {
  kCharacter,   // a whole character
  kInvalid,     // bytes that start no character; as many as one U+FFFD replaces
  kIncomplete,  // the text ends inside a character that could still become valid
};

struct Utf8Step {
  Utf8Kind kind;
  size_t bytes;
};

// The first character of the text. REQUIRES: not empty.
Utf8Step next_utf8(std::string_view text);

bool is_valid_utf8(std::string_view text);

// The code point of a valid character.
char32_t code_point(std::string_view character);

// Appends the bytes as text, with a U+FFFD for each maximal invalid sequence (the "maximal subpart"
// rule of Unicode 3.9, which Rust, and so the Hugging Face library, follows). Returns the number of
// bytes used: all of them or, when more bytes may follow (`!is_last`), all except an incomplete
// character at the end.
size_t append_lossy(std::string& text, std::string_view bytes, bool is_last);

// Bytes written in the byte-level alphabet.
std::string byte_level_text(std::string_view bytes);

// The bytes of a string in that alphabet; nullopt when a character is not in it.
std::optional<std::string> byte_level_bytes(std::string_view text);

}  // namespace tlt

// Text as bytes: walking UTF-8 that may be broken or cut off, and GPT-2's byte-level alphabet,
// which writes any byte string with 256 printable characters (the spelling of tokens in
// tokenizer.json).
//
//   std::string text;
//   size_t used = append_lossy(text, "caf\xC3", /*is_last=*/false);   // "caf", used == 3: C3 may
//   go on byte_level_text(" a\n") == "ĠaĊ"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tlt::data {

enum class Utf8Kind {
  kCharacter,   // a whole character
  kInvalid,     // bytes that no character begins with; as many as one U+FFFD stands for
  kIncomplete,  // the text ends inside a character that could still become valid
};

struct Utf8Step {
  Utf8Kind kind;
  size_t bytes;
};

// What the text begins with. REQUIRES: not empty.
Utf8Step next_utf8(std::string_view text);

bool is_valid_utf8(std::string_view text);

// The code point of a valid character.
char32_t code_point(std::string_view character);

// Appends the bytes as text, each invalid stretch as U+FFFD (the "maximal subpart" rule of
// Unicode 3.9, which Rust, and so the Hugging Face library, follows). Returns how many bytes it
// used: all of them, or, when more bytes may follow (`!is_last`), all but an incomplete character
// at the end.
size_t append_lossy(std::string& text, std::string_view bytes, bool is_last);

// Bytes spelled in the byte-level alphabet.
std::string byte_level_text(std::string_view bytes);

// The bytes a spelling stands for; nullopt when a character is not of the alphabet.
std::optional<std::string> byte_level_bytes(std::string_view text);

}  // namespace tlt::data

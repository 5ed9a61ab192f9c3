// Metaspace: the step of that name in a tokenizer.json, which writes a space as "▁" (U+2581) and
// may add one at the beginning of a text, as SentencePiece does. The pre-tokenizer applies it, the
// decoder reverses it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tlt::tokenizer {

struct Metaspace {
  enum class Scheme {
    kAlways,  // before each piece between added tokens that does not start with one
    kFirst,   // only at the beginning of the text
    kNever,
  };

  // InputError: an invalid field.
  explicit Metaspace(const nlohmann::json& description);

  std::string mark;  // one character
  Scheme scheme = Scheme::kAlways;
  bool splits = true;  // a word begins at each mark
};

}  // namespace tlt::tokenizer

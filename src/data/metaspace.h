// Metaspace: the step of that name in a tokenizer.json, which writes a space as "▁" (U+2581) and
// may put one in front of a text. SentencePiece's way; the pre-tokenizer does it, the decoder
// undoes it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tlt::data {

struct Metaspace {
  enum class Scheme {
    kAlways,  // in front of each stretch between added tokens that does not begin with one
    kFirst,   // in front of the text's begin only
    kNever,
  };

  // InputError: a field is wrong.
  explicit Metaspace(const nlohmann::json& description);

  std::string mark;  // one character
  Scheme scheme = Scheme::kAlways;
  bool splits = true;  // a word begins at each mark
};

}  // namespace tlt::data

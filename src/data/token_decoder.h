// TokenDecoder: what tokens stand for in a decoded text, as the "decoder" of a tokenizer.json says.
// Either ByteLevel alone, or, as SentencePiece's vocabularies have it, a Sequence in this order of
// Replace, Metaspace and Strip (each token for itself), ByteFallback ("<0xE6>" is a byte), Fuse,
// and one Strip at the begin of the whole text. Any other type or order is an InputError that names
// it.
//
// TextStream puts the tokens of one response together. Text is given out once it is final: the
// bytes of an unfinished character wait, and with ByteFallback a run of bytes waits for its end,
// for one wrong byte makes each of them a U+FFFD.
//
// Threading  TokenDecoder: one thread while pieces are made, then constant. TextStream: one thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/replacement.h"

namespace tlt::data {

// What a token adds to a text.
struct TokenPiece {
  std::string bytes;
  std::string first_bytes = {};  // with Metaspace: as the first token of a text
  bool is_byte = false;          // one byte of ByteFallback
};

class TokenDecoder {
 public:
  // Tokens are joined as they are spelled.
  TokenDecoder() = default;
  explicit TokenDecoder(const nlohmann::json& description);

  TokenPiece piece(std::string_view token);

 private:
  friend class TextStream;
  enum class Stage { kTokens, kBytes, kFused, kDone };
  struct Step {
    std::optional<Replacement> replacement = {};
    std::optional<Replacement> first_replacement = {};  // of the first token, where it is another
    std::string stripped = {};  // one character, taken away at most so often:
    int64_t at_begin = 0, at_end = 0;
  };

  void add_steps(const nlohmann::json& description, Stage& stage);
  void add_strip(const nlohmann::json& description, Stage& stage);
  std::string spell(std::string_view token, bool is_first);

  std::vector<Step> steps_;  // of each token
  bool is_byte_level_ = false;
  bool falls_back_ = false;
  bool first_differs_ = false;
  std::string stripped_;  // of the whole text's begin, at most
  int64_t strips_ = 0;    // so often
};

class TextStream {
 public:
  // The decoder must outlive the stream.
  explicit TextStream(const TokenDecoder& decoder) : decoder_(&decoder) { restart(); }

  // Appends the text that a token makes final.
  void push(const TokenPiece& piece, std::string& text);

  // Appends what was held back. The stream can be used for a new response.
  void finish(std::string& text);

 private:
  void restart();
  void emit(std::string_view part, std::string& text);
  void end_run(std::string& text);

  const TokenDecoder* decoder_;
  bool is_first_ = true;
  int64_t strips_left_ = 0;
  std::string held_;  // the begin of a character, or a run of bytes
};

}  // namespace tlt::data

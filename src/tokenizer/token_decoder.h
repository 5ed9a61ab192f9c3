// TokenDecoder: the bytes that tokens add to a decoded text, by the "decoder" of a tokenizer.json.
// Either ByteLevel alone, or, as in SentencePiece's vocabularies, a Sequence in this order of
// Replace, Metaspace and Strip (per token), ByteFallback ("<0xE6>" is a byte), Fuse, and one Strip
// at the beginning of the whole text. Any other type or order is an InputError that names it.
//
// DecodeStream joins the tokens of one response. It returns text once it is final: the bytes of an
// incomplete character wait, and with ByteFallback a run of bytes waits for its end, because one
// wrong byte makes each of them a U+FFFD.
//
// Threading  TokenDecoder: one thread while pieces are made, then constant. DecodeStream: one
//            thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/replacement.h"

namespace tlt::tokenizer {

// The bytes that a token adds to a text.
struct TokenPiece {
  std::string bytes;
  std::string first_bytes = {};  // with Metaspace: as the first token of a text
  bool is_byte = false;          // one byte of ByteFallback
};

class TokenDecoder {
 public:
  // Joins tokens as written.
  TokenDecoder() = default;
  explicit TokenDecoder(const nlohmann::json& description);

  TokenPiece piece(std::string_view token);

 private:
  friend class DecodeStream;
  enum class Stage { kTokens, kBytes, kFused, kDone };
  struct Step {
    std::optional<Replacement> replacement = {};
    std::optional<Replacement> first_replacement = {};  // of the first token, if different
    std::string stripped = {};  // one character, removed at most this many times:
    int64_t at_begin = 0, at_end = 0;
  };

  void add_steps(const nlohmann::json& description, Stage& stage);
  void add_strip(const nlohmann::json& description, Stage& stage);
  std::string bytes_of(std::string_view token, bool is_first);

  std::vector<Step> steps_;  // of each token
  bool is_byte_level_ = false;
  bool falls_back_ = false;
  bool first_differs_ = false;
  std::string stripped_;  // removed from the beginning of the text, at most
  int64_t strips_ = 0;    // this many times
};

class DecodeStream {
 public:
  // The decoder must outlive the stream.
  explicit DecodeStream(const TokenDecoder& decoder) : decoder_(&decoder) { restart(); }

  // Appends the text that this token completes.
  void push(const TokenPiece& piece, std::string& text);

  // Appends what was held back. The stream can then be used for a new response.
  void finish(std::string& text);

 private:
  void restart();
  void emit(std::string_view part, std::string& text);
  void end_run(std::string& text);

  const TokenDecoder* decoder_;
  bool is_first_ = true;
  int64_t strips_left_ = 0;
  std::string held_;  // the beginning of a character, or a run of bytes
};

}  // namespace tlt::tokenizer

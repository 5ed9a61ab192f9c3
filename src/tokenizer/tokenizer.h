// Tokenizer: converts text to tokens and back, from a Hugging Face model folder (tokenizer.json
// with byte-pair encoding: Qwen 2/2.5/3, Llama 3, GPT-2 and similar; SentencePiece with byte
// fallback: Llama 2, Mistral, Gemma). Tokens are those of the `tokenizers` library; a component
// that is not supported is an InputError that names it.
//
// Not here   chat templates (chat_template.h) and prompts (prompt_renderer.h).
// Threading  constant after loading; any function from any thread. Copies share everything.
//
//   const Tokenizer tokenizer = Tokenizer::load("models/qwen");
//   std::vector<int32_t> tokens = tokenizer.encode("1+1=2<|im_end|>");   // none is added
//   std::string text = tokenizer.decode(tokens);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/token_decoder.h"

namespace tlt::tokenizer {

// Special tokens by their role, as far as the model folder names them.
struct TokenRoles {
  std::optional<int32_t> bos;
  std::optional<int32_t> pad;
  std::vector<int32_t> eos;  // any of them ends a response; tokenizer_config.json's first
};

class Tokenizer {
 public:
  // Reads tokenizer.json and, where they exist, tokenizer_config.json and generation_config.json.
  static Tokenizer load(const std::filesystem::path& folder);

  // From the content of a tokenizer.json; no roles. Error messages call it `name`.
  static Tokenizer parse(std::string_view json, const std::string& name);

  // Recognises added tokens in the text and adds none. InputError: the text is not UTF-8.
  std::vector<int32_t> encode(std::string_view text) const;

  // Bytes that are not UTF-8 become U+FFFD; ids without a token are skipped.
  std::string decode(std::span<const int32_t> tokens, bool skip_special = false) const;

  // Largest id + 1. A model may have more rows (padding).
  int64_t vocab_size() const;

  // InputError: there is no such token.
  int32_t id_of(std::string_view token) const;
  std::optional<int32_t> try_id_of(std::string_view token) const;

  // The bytes that the token adds in the middle of a decoded text; empty when the id has none.
  std::string_view token_bytes(int32_t id) const;

  bool is_special(int32_t id) const;

  const TokenRoles& roles() const { return roles_; }

  // The folder it was loaded from; empty when it was parsed.
  const std::string& folder() const { return folder_; }

 private:
  struct Core;
  friend class StreamingDecoder;
  explicit Tokenizer(std::shared_ptr<const Core> core) : core_(std::move(core)) {}
  void push(int32_t id, bool skip_special, DecodeStream& stream, std::string& text) const;

  std::shared_ptr<const Core> core_;
  TokenRoles roles_;
  std::string folder_;
};

// StreamingDecoder: decodes a response token by token and returns text once it is final
// (token_decoder.h). The concatenation of all results of push() and finish() equals decode() of all
// tokens.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(Tokenizer tokenizer, bool skip_special = false);

  // The text that this token completes.
  std::string push(int32_t token);

  // The text that was held back. The decoder can then be used for a new response.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skips_special_;
  DecodeStream stream_;
};

}  // namespace tlt::tokenizer

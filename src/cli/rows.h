// Rows: the JSON lines that commands read and write. The file name "-" is standard input, or
// standard output for AtomicFile (base/files.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "chat_template/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace tlt::cli {

struct InputRow {
  nlohmann::json id = nullptr;  // null: none
  std::vector<int32_t> tokens;
  std::string place;           // "prompts.jsonl:17"
  int32_t response_begin = 1;  // tlt score: first token that gets a logprob
  bool is_text = false;        // tlt score: the row has no tokens, so they are written
};

// The tokens under `name`. InputError, beginning with the place: missing, not integers, or not in
// the vocabulary.
std::vector<int32_t> tokens_of(const nlohmann::json& row, const std::string& place,
                               int64_t vocabulary, const std::string& name = "tokens");

// How prompts are encoded for a model.
struct PromptFormat {
  const std::optional<tokenizer::Tokenizer>& tokenizer;  // of the folder `model`; borrowed
  const std::string& model;
  int64_t vocabulary;
  bool wraps_texts = false;  // a string is a user message
};

// Encodes prompts that are strings or messages: a string as it is, without added special tokens,
// messages as rendered by the folder's chat template.
class PromptEncoder {
 public:
  explicit PromptEncoder(const PromptFormat& format) : format_(format) {}

  // Encodes {"prompt": string or [messages], "tools"?}. InputError, beginning with the place.
  std::vector<int32_t> encode(const nlohmann::json& row, const std::string& place);
  // Encodes a string as it is. InputError as above: empty, not UTF-8, or no tokenizer.
  std::vector<int32_t> encode_text(const std::string& text, const std::string& place) const;
  // The folder's chat template, read at the first call. InputError: it has none.
  const chat_template::ChatTemplate& chat_template();

  // InputError, beginning with the place: no tokenizer.
  void check_tokenizer(const std::string& place) const;

 private:
  std::string write(const nlohmann::json& row, const std::string& place);

  const PromptFormat format_;
  std::optional<chat_template::ChatTemplate> template_;
};

// The rows of a JSONL file, which must be objects; sets id and place, `make_row` sets the rest.
using MakeRow = std::function<void(const nlohmann::json& json, InputRow& row)>;
std::vector<InputRow> read_rows(const std::string& path, const MakeRow& make_row);

// {"id"?, "tokens"} and {"id"?, "prompt", "tools"?} rows of a file, or generated countdown problems
// ("countdown:seed=7,size=64").
std::vector<InputRow> read_prompts(const std::string& path, const PromptFormat& format);

// The shortest decimals that read back to the same float; as doubles they would have 17 digits.
nlohmann::ordered_json numbers(std::span<const float> values);

// One object on one line. Invalid UTF-8 becomes U+FFFD.
std::string to_line(const nlohmann::ordered_json& row);

// Writes the line to standard output and flushes it, for a program that reads from a pipe.
void print_line(const nlohmann::ordered_json& row);

// Writes text to standard output, without delay. InputError: it cannot be written.
void print_text(std::string_view text);

}  // namespace tlt::cli

// Rows: the JSON lines that commands read and write. As a file name "-" is standard input, and
// standard output where AtomicFile writes (base/files.h).
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
#include "data/chat_template.h"
#include "data/tokenizer.h"

namespace tlt::apps {

struct InputRow {
  nlohmann::json id = nullptr;  // null: the row has none
  std::vector<int32_t> tokens;
  std::string place;           // "prompts.jsonl:17"
  int32_t response_begin = 1;  // tlt score: logprobs of the tokens from here on
  bool is_text = false;        // tlt score: the tokens are not in the file
};

// Tokens under `name`. InputError, beginning with the place: none, not whole numbers, or not the
// vocabulary's.
std::vector<int32_t> tokens_of(const nlohmann::json& row, const std::string& place,
                               int64_t vocabulary, const std::string& name = "tokens");

// How prompts become the tokens of a model.
struct PromptFormat {
  const std::optional<data::Tokenizer>& tokenizer;  // of the folder `model`; borrowed
  const std::string& model;
  int64_t vocabulary;
  bool wraps_texts = false;  // a text is a user's message
};

// Encodes prompts that are texts or messages: a text as it is, without special tokens, messages as
// the folder's chat template writes them.
class PromptEncoder {
 public:
  explicit PromptEncoder(const PromptFormat& format) : format_(format) {}

  // Of {"prompt": text or [messages], "tools"?}. InputError, beginning with the place.
  std::vector<int32_t> encode(const nlohmann::json& row, const std::string& place);
  // Of a text as it is. InputError as above: it is empty or not UTF-8, or there is no tokenizer.
  std::vector<int32_t> encode_text(const std::string& text, const std::string& place) const;
  // The folder's, which is read when it is first asked for. InputError: it has none.
  const data::ChatTemplate& chat_template();

  // InputError, beginning with the place: there is no tokenizer.
  void check_tokenizer(const std::string& place) const;

 private:
  std::string write(const nlohmann::json& row, const std::string& place);

  const PromptFormat format_;
  std::optional<data::ChatTemplate> template_;
};

// The rows of a JSONL file, each as `make_row` reads it: an object with its id and place.
using MakeRow = std::function<void(const nlohmann::json& json, InputRow& row)>;
std::vector<InputRow> read_rows(const std::string& path, const MakeRow& make_row);

// {"id"?, "tokens"} and {"id"?, "prompt", "tools"?} rows of a file, or countdown problems made on
// the fly ("countdown:seed=7,size=64").
std::vector<InputRow> read_prompts(const std::string& path, const PromptFormat& format);

// The shortest decimals that read back to the same float: JSON numbers are doubles, which would
// show 17 digits.
nlohmann::ordered_json numbers(std::span<const float> values);

// One object on one line. Bytes that are not UTF-8 become U+FFFD.
std::string to_line(const nlohmann::ordered_json& row);

// Writes the line to standard output at once, for a program at the other end of a pipe.
void print_line(const nlohmann::ordered_json& row);

}  // namespace tlt::apps

// Rows: the JSON lines that commands read and write. As a file name "-" is standard input, and
// standard output where AtomicFile writes (base/files.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/tokenizer.h"

namespace tlt::apps {

struct InputRow {
  nlohmann::json id;  // null: the row has none
  std::vector<int32_t> tokens;
  std::string place;  // "prompts.jsonl:17"
};

// Tokens under "tokens". InputError, beginning with the place: none, not whole numbers, or not the
// vocabulary's.
std::vector<int32_t> tokens_of(const nlohmann::json& row, const std::string& place,
                               int64_t vocabulary);

// {"id"?, "tokens"} rows of a file; with `tokenizer` (of the folder `model`) also {"id"?, "prompt":
// text}, which is encoded as it is, without special tokens, and {"id"?, "prompt": [messages],
// "tools"?}, which the folder's chat template writes. `wraps_texts`: a text is a user's message.
std::vector<InputRow> read_prompts(const std::string& path,
                                   const std::optional<data::Tokenizer>& tokenizer,
                                   const std::string& model, int64_t vocabulary,
                                   bool wraps_texts = false);
std::vector<InputRow> read_token_rows(const std::string& path, int64_t vocabulary);

// The shortest decimals that read back to the same float: JSON numbers are doubles, which would
// show 17 digits.
nlohmann::ordered_json numbers(std::span<const float> values);

// One object on one line. Bytes that are not UTF-8 become U+FFFD.
std::string to_line(const nlohmann::ordered_json& row);

// Writes the line to standard output at once, for a program at the other end of a pipe.
void print_line(const nlohmann::ordered_json& row);

}  // namespace tlt::apps

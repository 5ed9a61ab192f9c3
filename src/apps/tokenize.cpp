// tlt tokenize: text to tokens and back, a JSON object a line, answered line by line.
//
//   encode   {"text"} -> {"tokens"}      no special token is added
//   decode   {"tokens"} -> {"text"}      special tokens are kept
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "apps/rows.h"
#include "base/check.h"
#include "base/json_lines.h"

namespace tlt::apps {
namespace {

using nlohmann::json;

nlohmann::ordered_json encode(const data::Tokenizer& tokenizer, const json& row,
                              const std::string& place) {
  TLT_CHECK_INPUT(row.is_object() && row.contains("text") && row["text"].is_string(), place,
                  ": give {\"text\": \"…\"}");
  return {{"tokens", tokenizer.encode(row["text"].get_ref<const std::string&>())}};
}

nlohmann::ordered_json decode(const data::Tokenizer& tokenizer, const json& row,
                              const std::string& place) {
  TLT_CHECK_INPUT(row.is_object() && row.contains("tokens") && row["tokens"].is_array(), place,
                  ": give {\"tokens\": [1, 2, …]}");
  std::vector<int32_t> tokens;
  for (const json& token : row["tokens"]) {
    TLT_CHECK_INPUT(token.is_number_integer() && token >= 0 && token <= INT32_MAX, place, ": ",
                    token.dump(-1, ' ', false, json::error_handler_t::replace),
                    " is no token id; give whole numbers from 0");
    tokens.push_back(token.get<int32_t>());
  }
  return {{"text", tokenizer.decode(tokens)}};
}

}  // namespace

int run_tokenize(const Arguments& arguments) {
  std::string model, mode;
  CLI::App app(
      "Text to tokens and back: JSON lines on standard input, answers on standard output.");
  app.add_option("--model", model, "Folder with tokenizer.json.")->required();
  app.add_option("MODE", mode, "encode, decode or chat.")->required();
  if (!try_parse(app, arguments)) return 0;
  TLT_CHECK_INPUT(
      mode != "chat",
      "chat: chat templates come with a later version; write the finished text and use encode");
  TLT_CHECK_INPUT(mode == "encode" || mode == "decode", "'", mode,
                  "' is no mode; use encode or decode");

  const data::Tokenizer tokenizer = data::Tokenizer::load(model);
  JsonLinesReader reader("/dev/stdin");
  for (json row; reader.try_next(row);)
    print_line(mode == "encode" ? encode(tokenizer, row, reader.place())
                                : decode(tokenizer, row, reader.place()));
  return 0;
}

}  // namespace tlt::apps

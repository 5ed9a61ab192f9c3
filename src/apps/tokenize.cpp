// tlt tokenize: encodes and decodes text; one JSON object per line, answered line by line.
//
//   encode   {"text"} -> {"tokens"}      no special token is added
//   decode   {"tokens"} -> {"text"}      special tokens are kept
//   chat     {"messages", "tools"?, "add_generation_prompt"?, "chat_template_kwargs"?} -> {"text",
//            "tokens"}                   with the model folder's chat template
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "base/check.h"
#include "base/json_lines.h"
#include "chat_template/chat_template.h"
#include "cli/rows.h"

namespace tlt::apps {
namespace {

using nlohmann::json;

nlohmann::ordered_json encode(const tokenizer::Tokenizer& tokenizer, const json& row,
                              const std::string& place) {
  TLT_CHECK_INPUT(row.is_object() && row.contains("text") && row["text"].is_string(), place,
                  ": give {\"text\": \"…\"}");
  return {{"tokens", tokenizer.encode(row["text"].get_ref<const std::string&>())}};
}

nlohmann::ordered_json decode(const tokenizer::Tokenizer& tokenizer, const json& row,
                              const std::string& place) {
  TLT_CHECK_INPUT(row.is_object() && row.contains("tokens") && row["tokens"].is_array(), place,
                  ": give {\"tokens\": [1, 2, …]}");
  std::vector<int32_t> tokens;
  for (const json& token : row["tokens"]) {
    TLT_CHECK_INPUT(token.is_number_integer() && token >= 0 && token <= INT32_MAX, place, ": ",
                    token.dump(-1, ' ', false, json::error_handler_t::replace),
                    " is not a token id; give integers from 0");
    tokens.push_back(token.get<int32_t>());
  }
  return {{"text", tokenizer.decode(tokens)}};
}

// Renders and encodes conversations.
class ChatWriter {
 public:
  ChatWriter(const std::string& model, const tokenizer::Tokenizer& tokenizer)
      : tokenizer_(tokenizer), template_(chat_template::ChatTemplate::find(model)) {
    TLT_CHECK_INPUT(template_, model, ": no chat template in this folder; chat needs one");
  }

  nlohmann::ordered_json write(const nlohmann::ordered_json& row, const std::string& place) const {
    TLT_CHECK_INPUT(row.is_object() && row.contains("messages"), place,
                    ": give {\"messages\": [{\"role\": \"user\", \"content\": \"…\"}]}");
    const auto prompt = row.value("add_generation_prompt", nlohmann::ordered_json(false));
    TLT_CHECK_INPUT(prompt.is_boolean(), place, ": add_generation_prompt is true or false");
    const std::string text =
        template_
            ->render({.messages = row.at("messages"),
                      .tools = row.value("tools", nlohmann::ordered_json()),
                      .add_generation_prompt = prompt.get<bool>(),
                      .variables = row.value("chat_template_kwargs", nlohmann::ordered_json())},
                     place)
            .text;
    return {{"text", text}, {"tokens", tokenizer_.encode(text)}};
  }

 private:
  const tokenizer::Tokenizer& tokenizer_;
  const std::optional<chat_template::ChatTemplate> template_;
};

}  // namespace

int run_tokenize(const cli::Arguments& arguments) {
  std::string model, mode, input = "-", output = "-";
  CLI::App app("Encodes and decodes text: one JSON object per line, answered line by line.");
  app.add_option("--model", model, "Folder with tokenizer.json.")->required();
  app.add_option("MODE", mode, "encode, decode or chat.")->required();
  app.add_option("--input", input, "JSONL file; -, the default: standard input.");
  app.add_option("--output", output, "JSONL file; -, the default: standard output.");
  if (!cli::try_parse(app, arguments)) return 0;
  TLT_CHECK_INPUT(mode == "encode" || mode == "decode" || mode == "chat", "'", mode,
                  "' is not a mode; use encode, decode or chat");

  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(model);
  JsonLinesReader reader(open_input(input));
  AtomicFile file(output);
  if (mode == "chat") {
    const ChatWriter writer(model, tokenizer);
    for (nlohmann::ordered_json row; reader.try_next(row);)
      file.append(cli::to_line(writer.write(row, reader.place())));
  } else {
    for (json row; reader.try_next(row);)
      file.append(cli::to_line(mode == "encode" ? encode(tokenizer, row, reader.place())
                                                : decode(tokenizer, row, reader.place())));
  }
  file.commit();
  return 0;
}

}  // namespace tlt::apps

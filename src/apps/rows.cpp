// SPDX-License-Identifier: Apache-2.0
#include "apps/rows.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <functional>

#include "base/check.h"
#include "base/json_lines.h"
#include "data/chat_template.h"

namespace tlt::apps {
namespace {

using nlohmann::json;

std::vector<InputRow> read_rows(
    const std::string& path,
    const std::function<std::vector<int32_t>(const json& row, const std::string& place)>& tokens) {
  JsonLinesReader reader(open_input(path));
  std::vector<InputRow> rows;
  json row;
  while (reader.try_next(row)) {
    TLT_CHECK_INPUT(row.is_object(), reader.place(),
                    ": not a JSON object; give one {\"id\": …, …} a line");
    rows.push_back({row.value("id", json()), tokens(row, reader.place()), reader.place()});
  }
  TLT_CHECK_INPUT(!rows.empty(), path, ": no rows; give a JSONL file with one row a line");
  return rows;
}

// Prompts that are texts or messages.
class PromptEncoder {
 public:
  PromptEncoder(const std::optional<data::Tokenizer>& tokenizer, const std::string& model,
                bool wraps_texts)
      : tokenizer_(tokenizer), model_(model), wraps_texts_(wraps_texts) {}

  std::vector<int32_t> encode(const json& row, const std::string& place) {
    TLT_CHECK_INPUT(row.contains("prompt"), place,
                    ": neither \"prompt\" nor \"tokens\"; give one of them");
    const json& prompt = row["prompt"];
    TLT_CHECK_INPUT(prompt.is_string() || prompt.is_array(), place,
                    ": the prompt is neither a text nor a list of messages; give one of them, or "
                    "\"tokens\": a list of token ids");
    TLT_CHECK_INPUT(tokenizer_.has_value(), place, ": the prompt is a text and ", model_,
                    " has no tokenizer.json; copy the model's there, or give \"tokens\"");
    const bool is_plain = prompt.is_string() && !wraps_texts_;
    std::vector<int32_t> tokens;
    try {
      tokens = tokenizer_->encode(is_plain ? prompt.get<std::string>() : write(row, place));
    } catch (const InputError& error) {
      const std::string text = error.what();
      throw InputError(text.starts_with(place) ? text : place + ": " + text);
    }
    TLT_CHECK_INPUT(!tokens.empty(), place, ": the prompt is empty; give at least one token");
    return tokens;
  }

 private:
  // By the chat template, which is read when it is first needed.
  std::string write(const json& row, const std::string& place) {
    if (!template_) template_ = data::ChatTemplate::find(model_);
    TLT_CHECK_INPUT(template_, model_,
                    ": no chat template in this folder; give finished texts (--raw) or tokens");
    const json& prompt = row["prompt"];
    data::Chat chat{.messages = prompt, .add_generation_prompt = true};
    if (prompt.is_string()) chat.messages = json::array({{{"role", "user"}, {"content", prompt}}});
    if (row.contains("tools")) chat.tools = row["tools"];
    return template_->render(chat, place).text;
  }

  const std::optional<data::Tokenizer>& tokenizer_;
  const std::string& model_;
  const bool wraps_texts_;
  std::optional<data::ChatTemplate> template_;
};

double shortest(float value) {
  std::array<char, 32> text;
  const char* end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  double result = value;  // an infinity or NaN stays one
  std::from_chars(text.data(), end, result);
  return result;
}

}  // namespace

std::vector<int32_t> tokens_of(const json& row, const std::string& place, int64_t vocabulary) {
  TLT_CHECK_INPUT(row.contains("tokens") && row["tokens"].is_array(), place,
                  ": no \"tokens\"; give a list of token ids");
  const json& list = row["tokens"];
  TLT_CHECK_INPUT(!list.empty(), place, ": \"tokens\" is empty; give at least one token");
  std::vector<int32_t> tokens;
  for (const json& token : list) {
    const bool is_id = token.is_number_integer() && token >= 0 && token < vocabulary;
    TLT_CHECK_INPUT(is_id, place, ": ", token.dump(-1, ' ', false, json::error_handler_t::replace),
                    " is no token of this model; give whole numbers from 0 to ", vocabulary - 1);
    tokens.push_back(token.get<int32_t>());
  }
  return tokens;
}

std::vector<InputRow> read_prompts(const std::string& path,
                                   const std::optional<data::Tokenizer>& tokenizer,
                                   const std::string& model, int64_t vocabulary, bool wraps_texts) {
  PromptEncoder encoder(tokenizer, model, wraps_texts);
  return read_rows(path, [&](const json& row, const std::string& place) {
    return row.contains("tokens") ? tokens_of(row, place, vocabulary) : encoder.encode(row, place);
  });
}

std::vector<InputRow> read_token_rows(const std::string& path, int64_t vocabulary) {
  return read_rows(path, [&](const json& row, const std::string& place) {
    return tokens_of(row, place, vocabulary);
  });
}

nlohmann::ordered_json numbers(std::span<const float> values) {
  auto list = nlohmann::ordered_json::array();
  for (const float value : values) list.push_back(shortest(value));
  return list;
}

std::string to_line(const nlohmann::ordered_json& row) {
  return row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void print_line(const nlohmann::ordered_json& row) {
  const std::string line = to_line(row);
  const bool is_written =
      std::fwrite(line.data(), 1, line.size(), stdout) == line.size() && std::fflush(stdout) == 0;
  TLT_CHECK_INPUT(is_written, "standard output cannot be written; is the disk full?");
}

}  // namespace tlt::apps

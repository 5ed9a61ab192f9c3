// SPDX-License-Identifier: Apache-2.0
#include "cli/rows.h"

#include <array>
#include <charconv>
#include <cstdio>

#include "base/check.h"
#include "base/json_lines.h"
#include "data/countdown_source.h"

namespace tlt::cli {
namespace {

using nlohmann::json;

// Problems of the embedded task.
std::vector<InputRow> made_prompts(const std::string& name, const PromptEncoder& encoder) {
  const auto source = data::CountdownSource::parse(name, /*is_held_out=*/false,
                                                   data::CountdownSource::Use::kProblems);
  std::vector<InputRow> rows;
  for (int64_t i = 0; i < source.size; ++i) {
    InputRow& row = rows.emplace_back();
    row.place = name + ": problem " + std::to_string(i + 1);
    row.tokens = encoder.encode_text(source.problem(i).prompt(), row.place);
  }
  return rows;
}

double shortest(float value) {
  std::array<char, 32> text;
  const char* end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  double result = value;  // stays infinite or NaN
  std::from_chars(text.data(), end, result);
  return result;
}

}  // namespace

std::vector<int32_t> tokens_of(const json& row, const std::string& place, int64_t vocabulary,
                               const std::string& name) {
  TLT_CHECK_INPUT(row.contains(name) && row[name].is_array(), place, ": no \"", name,
                  "\"; give a list of token ids");
  const json& list = row[name];
  TLT_CHECK_INPUT(!list.empty(), place, ": \"", name, "\" is empty; give at least one token");
  std::vector<int32_t> tokens;
  for (const json& token : list) {
    const bool is_id = token.is_number_integer() && token >= 0 && token < vocabulary;
    TLT_CHECK_INPUT(is_id, place, ": ", token.dump(-1, ' ', false, json::error_handler_t::replace),
                    " is not a token of this model; give integers from 0 to ", vocabulary - 1);
    tokens.push_back(token.get<int32_t>());
  }
  return tokens;
}

std::vector<int32_t> PromptEncoder::encode(const json& row, const std::string& place) {
  TLT_CHECK_INPUT(row.contains("prompt"), place,
                  ": neither \"prompt\" nor \"tokens\"; give one of them");
  const json& prompt = row["prompt"];
  TLT_CHECK_INPUT(prompt.is_string() || prompt.is_array(), place,
                  ": the prompt is neither a string nor a list of messages; give one of them, or "
                  "\"tokens\": a list of token ids");
  const bool is_plain = prompt.is_string() && !format_.wraps_texts;
  return encode_text(is_plain ? prompt.get<std::string>() : write(row, place), place);
}

void PromptEncoder::check_tokenizer(const std::string& place) const {
  TLT_CHECK_INPUT(format_.tokenizer.has_value(), place, ": a string, and ", format_.model,
                  " has no tokenizer.json; copy the model's there, or give \"tokens\"");
}

std::vector<int32_t> PromptEncoder::encode_text(const std::string& text,
                                                const std::string& place) const {
  check_tokenizer(place);
  std::vector<int32_t> tokens;
  try {
    tokens = format_.tokenizer->encode(text);
  } catch (const InputError& error) {
    throw InputError(place + ": " + error.what());
  }
  TLT_CHECK_INPUT(!tokens.empty(), place, ": the string has no tokens; give at least one");
  return tokens;
}

const chat_template::ChatTemplate& PromptEncoder::chat_template() {
  if (!template_) template_ = chat_template::ChatTemplate::find(format_.model);
  TLT_CHECK_INPUT(template_, format_.model,
                  ": no chat template in this folder; give rendered strings (--raw) or tokens");
  return *template_;
}

std::string PromptEncoder::write(const json& row, const std::string& place) {
  check_tokenizer(place);
  const json& prompt = row["prompt"];
  chat_template::Chat chat{.messages = prompt, .add_generation_prompt = true};
  if (prompt.is_string()) chat.messages = json::array({{{"role", "user"}, {"content", prompt}}});
  if (row.contains("tools")) chat.tools = row["tools"];
  return chat_template().render(chat, place).text;
}

std::vector<InputRow> read_rows(const std::string& path, const MakeRow& make_row) {
  JsonLinesReader reader(open_input(path));
  std::vector<InputRow> rows;
  json row;
  while (reader.try_next(row)) {
    TLT_CHECK_INPUT(row.is_object(), reader.place(),
                    ": not a JSON object; give one {\"id\": …, …} per line");
    rows.push_back({row.value("id", json()), {}, reader.place()});
    make_row(row, rows.back());
  }
  TLT_CHECK_INPUT(!rows.empty(), path, ": no rows; give a JSONL file with one row a line");
  return rows;
}

std::vector<InputRow> read_prompts(const std::string& path, const PromptFormat& format) {
  PromptEncoder encoder(format);
  if (data::CountdownSource::is_named_by(path)) return made_prompts(path, encoder);
  return read_rows(path, [&](const json& json, InputRow& row) {
    row.tokens = json.contains("tokens") ? tokens_of(json, row.place, format.vocabulary)
                                         : encoder.encode(json, row.place);
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

void print_line(const nlohmann::ordered_json& row) { print_text(to_line(row)); }

void print_text(std::string_view text) {
  const bool is_written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  TLT_CHECK_INPUT(is_written, "standard output cannot be written; is the disk full?");
}

}  // namespace tlt::cli

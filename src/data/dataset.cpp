// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "data/countdown_source.h"
#include "data/prompt_renderer.h"
#include "data/row_fields.h"
#include "data/row_numbers.h"
#include "data/row_store.h"
#include "data/rows.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

// Serialization of a prompt; of its place only the part after the file's name.
std::string packed(const Prompt& prompt, const std::string& file) {
  const auto* tokens = reinterpret_cast<const uint8_t*>(prompt.tokens.data());
  const Json record = Json::array(
      {prompt.id, Json::binary({tokens, tokens + prompt.tokens.size() * sizeof(int32_t)}),
       prompt.text, prompt.data_source, prompt.ground_truth, prompt.messages, prompt.extra_info,
       prompt.place.substr(file.size()), prompt.tools});
  std::string bytes;
  Json::to_cbor(record, bytes);
  return bytes;
}

Prompt unpacked(const std::string& bytes, const std::string& file) {
  Json record = Json::from_cbor(bytes);
  Prompt prompt{.id = record[0].get<uint32_t>(),
                .tokens = {},
                .text = std::move(record[2].get_ref<std::string&>()),
                .data_source = std::move(record[3].get_ref<std::string&>()),
                .ground_truth = std::move(record[4].get_ref<std::string&>()),
                .messages = std::move(record[5]),
                .tools = std::move(record[8]),
                .extra_info = std::move(record[6]),
                .place = file + record[7].get_ref<const std::string&>()};
  const Json::binary_t& tokens = record[1].get_binary();
  prompt.tokens.resize(tokens.size() / sizeof(int32_t));
  std::memcpy(prompt.tokens.data(), tokens.data(), tokens.size());
  return prompt;
}

class FilePrompts final : public Source<Prompt> {
 public:
  FilePrompts(std::string file, RowStore rows) : file_(std::move(file)), rows_(std::move(rows)) {}
  int64_t size() const override { return rows_.size(); }
  Prompt item(int64_t index) const override { return unpacked(rows_.row(index), file_); }

 private:
  const std::string file_;
  const RowStore rows_;
};

class MadeProblems final : public Source<Prompt> {
 public:
  MadeProblems(std::string name, CountdownSource source, tokenizer::Tokenizer tokenizer,
               const DataOptions& options, int64_t first_id)
      : name_(std::move(name)),
        source_(source),
        tokenizer_(std::move(tokenizer)),
        data_source_(options.data_source.empty() ? kCountdownDataSource : options.data_source),
        max_prompt_length_(options.max_prompt_length),
        first_id_(first_id) {
    if (!options.opens_turn) renderer_.emplace(options, tokenizer_);
  }

  int64_t size() const override { return source_.size; }

  Prompt item(int64_t index) const override {
    const CountdownProblem problem = source_.problem(index);
    Prompt prompt{.id = static_cast<uint32_t>(first_id_ + index),
                  .tokens = tokenizer_.encode(problem.prompt()),
                  .text = problem.prompt(),
                  .data_source = data_source_,
                  .ground_truth = problem.ground_truth(),
                  .messages = {},
                  .tools = {},
                  .extra_info = Json::object(),
                  .place = name_ + ": problem " + std::to_string(index + 1)};
    if (renderer_) {
      prompt.messages = user_message(prompt.text);
      prompt.text = renderer_->conversation({.messages = prompt.messages}, prompt.place);
      prompt.tokens = tokenizer_.encode(prompt.text);
    }
    TLT_CHECK_INPUT(std::ssize(prompt.tokens) <= max_prompt_length_, "the prompt ", prompt.text,
                    " has ", prompt.tokens.size(),
                    " tokens; raise data.max_prompt_length=", max_prompt_length_);
    return prompt;
  }

 private:
  const std::string name_;
  const CountdownSource source_;
  const tokenizer::Tokenizer tokenizer_;
  const std::string data_source_;
  const int64_t max_prompt_length_, first_id_;
  std::optional<PromptRenderer> renderer_;  // of conversations; none: a prompt is a text
};

// Reads the files in order and counts rows.
class DatasetLoader {
 public:
  DatasetLoader(const DataOptions& options, const tokenizer::Tokenizer& tokenizer, Split split,
                const RequiredFields& required, const RowCheck& check)
      : options_(options),
        tokenizer_(tokenizer),
        required_(required),
        check_(check),
        renderer_(options, tokenizer),
        numbers_(options, split) {}

  std::shared_ptr<const Source<Prompt>> read(const std::string& file) {
    if (CountdownSource::is_named_by(file)) {
      const auto rows = numbers_.generated(file, CountdownSource::Use::kProblems);
      auto problems =
          std::make_shared<MadeProblems>(file, rows.source, tokenizer_, options_, rows.first_row);
      if (problems->size() > 0) check(problems->item(0), file);
      return problems;
    }
    RowStore prompts;
    const std::unique_ptr<RowReader> rows = open_rows(file);
    for (Json row; !numbers_.is_full() && rows->try_next(row);)
      add(row, file, rows->place(), prompts);
    return std::make_shared<FilePrompts>(file, std::move(prompts));
  }

  int64_t left_out() const { return left_out_; }
  bool leaves_out_template() const { return leaves_out_template_; }

 private:
  void add(const Json& row, const std::string& file, const std::string& place, RowStore& prompts) {
    check_prompt_type(row, options_, place);
    leaves_out_template_ = leaves_out_template_ || renderer_.leaves_out_template(row);
    Prompt prompt{.id = static_cast<uint32_t>(numbers_.next()),
                  .tokens = {},
                  .text = renderer_.text(row, place),
                  .data_source = {},
                  .ground_truth = ground_truth_of(row, options_, place, required_.ground_truth),
                  .messages = options_.opens_turn ? prompt_messages(row, options_)
                                                  : renderer_.messages(row, place),
                  .tools = options_.opens_turn ? Json() : renderer_.tools(row, place),
                  .extra_info = extra_info_of(row, options_),
                  .place = place};
    prompt.data_source = data_source_of(row, options_, place, required_.data_source);
    auto tokens = renderer_.try_tokens(prompt.text, place);
    if (!tokens) {
      ++left_out_;
      return;
    }
    prompt.tokens = std::move(*tokens);
    check(prompt, place);
    prompts.append(packed(prompt, file));
  }

  void check(const Prompt& prompt, const std::string& place) const {
    if (!check_) return;
    try {
      check_(prompt);
    } catch (const InputError& error) {
      throw InputError(place + ": " + error.what());
    }
  }

  const DataOptions& options_;
  const tokenizer::Tokenizer& tokenizer_;
  const RequiredFields& required_;
  const RowCheck& check_;
  const PromptRenderer renderer_;
  RowNumbers numbers_;
  int64_t left_out_ = 0;
  bool leaves_out_template_ = false;
};

}  // namespace

Dataset Dataset::load(const DataOptions& options, const tokenizer::Tokenizer& tokenizer,
                      Split split, const RequiredFields& required, const RowCheck& check) {
  options.check();
  const SplitFiles named = options.files_of(split);
  Dataset dataset;
  DatasetLoader loader(options, tokenizer, split, required, check);
  for (size_t i = 0; i < named.files.size(); ++i)
    dataset.sources_.add(loader.read(named.files[i]), named.weight(i));
  dataset.left_out_ = loader.left_out();
  dataset.leaves_out_template_ = loader.leaves_out_template();
  TLT_CHECK_INPUT(dataset.size() > 0, named.option, ": no prompts in ", named.files[0],
                  named.files.size() > 1 ? " and the other files" : "", " (", dataset.left_out_,
                  " were longer than data.max_prompt_length); give one row a line");
  return dataset;
}

}  // namespace tlt::data

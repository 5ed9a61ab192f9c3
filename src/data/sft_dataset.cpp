// SPDX-License-Identifier: Apache-2.0
#include "data/sft_dataset.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "data/countdown_source.h"
#include "data/prompt_renderer.h"
#include "data/row_fields.h"
#include "data/rows.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kMaxAttempts = 1000;  // to make a demonstration that is short enough

// data.loss_weights: "</think>=3" for the token </think>.
std::unordered_map<int32_t, float> read_weights(const std::vector<std::string>& entries,
                                                const tokenizer::Tokenizer& tokenizer) {
  std::unordered_map<int32_t, float> weights;
  for (const std::string& entry : entries) {
    const size_t equals = entry.rfind('=');
    float weight = 0;
    const char* end = entry.data() + entry.size();
    const bool is_read = equals != std::string::npos &&
                         std::from_chars(entry.data() + equals + 1, end, weight).ptr == end &&
                         equals + 1 < entry.size();
    TLT_CHECK_INPUT(is_read && weight >= 0 && weight <= 1e6F, "data.loss_weights: \"", entry,
                    "\" is not a token and its weight, like </think>=3");
    const std::vector<int32_t> tokens = tokenizer.encode(entry.substr(0, equals));
    TLT_CHECK_INPUT(tokens.size() == 1, "data.loss_weights: \"", entry.substr(0, equals), "\" is ",
                    tokens.size(), " tokens; give a single one");
    weights[tokens[0]] = weight;
  }
  return weights;
}

// Joins a prompt and a response.
class ExampleMaker {
 public:
  ExampleMaker(const DataOptions& options, const tokenizer::Tokenizer& tokenizer)
      : tokenizer_(tokenizer),
        renderer_(options, tokenizer),
        max_response_length_(options.max_response_length),
        weights_(read_weights(options.loss_weights, tokenizer)) {
    TLT_CHECK_INPUT(!tokenizer.roles().eos.empty(),
                    "the model folder names no end-of-sequence token; set eos_token in its "
                    "tokenizer_config.json");
  }

  const PromptRenderer& renderer() const { return renderer_; }
  int64_t max_response_length() const { return max_response_length_; }

  std::vector<int32_t> response_tokens(const std::string& response) const {
    std::vector<int32_t> tokens = tokenizer_.encode(response);
    const auto& eos = tokenizer_.roles().eos;
    if (tokens.empty() || std::ranges::find(eos, tokens.back()) == eos.end())
      tokens.push_back(eos[0]);
    return tokens;
  }

  SftExample join(std::vector<int32_t> prompt, const std::vector<int32_t>& response,
                  int64_t row) const {
    const int64_t begin = std::ssize(prompt);
    prompt.insert(prompt.end(), response.begin(), response.end());
    const int64_t end = std::ssize(prompt);
    return weigh({.tokens = std::move(prompt), .spans = {{begin, end}}}, row);
  }

  SftExample weigh(ChatTokens chat, int64_t row) const {
    SftExample example{.tokens = std::move(chat.tokens),
                       .response_begin = chat.spans[0].first,
                       .spans = std::move(chat.spans),
                       .weights = {},
                       .row = row};
    example.weights.assign(example.tokens.size(), 0.0F);
    for (const auto& [begin, end] : example.spans) {
      for (auto at = static_cast<size_t>(begin); at < static_cast<size_t>(end); ++at) {
        const auto weight = weights_.find(example.tokens[at]);
        example.weights[at] = weight == weights_.end() ? 1.0F : weight->second;
      }
    }
    return example;
  }

 private:
  const tokenizer::Tokenizer tokenizer_;
  const PromptRenderer renderer_;
  const int64_t max_response_length_;
  const std::unordered_map<int32_t, float> weights_;
};

class MadeDemonstrations final : public Source<SftExample> {
 public:
  MadeDemonstrations(CountdownSource source, std::shared_ptr<const ExampleMaker> maker,
                     int64_t first_row)
      : source_(source), maker_(std::move(maker)), first_row_(first_row) {}

  int64_t size() const override { return source_.size; }

  SftExample item(int64_t index) const override {
    for (uint32_t attempt = 0; attempt < kMaxAttempts; ++attempt) {
      const auto made = source_.demonstration(index, attempt);
      const std::vector<int32_t> response = maker_->response_tokens(made.response);
      auto prompt = maker_->renderer().try_tokens(made.problem.prompt(), "countdown");
      if (prompt && std::ssize(response) <= maker_->max_response_length())
        return maker_->join(std::move(*prompt), response, first_row_ + index);
    }
    throw InputError(
        "none of " + std::to_string(kMaxAttempts) + " countdown demonstrations fits into " +
        std::to_string(maker_->max_response_length()) + " tokens; raise data.max_response_length");
  }

 private:
  const CountdownSource source_;
  const std::shared_ptr<const ExampleMaker> maker_;
  const int64_t first_row_;
};

// Reads the files in order and counts rows.
class SftLoader {
 public:
  SftLoader(const DataOptions& options, const tokenizer::Tokenizer& tokenizer, Split split)
      : options_(options),
        split_(split),
        maker_(std::make_shared<ExampleMaker>(options, tokenizer)),
        max_rows_(options.files_of(split).max_rows) {}

  std::shared_ptr<const Source<SftExample>> read(const std::string& file) {
    if (CountdownSource::is_named_by(file)) {
      auto source = CountdownSource::parse(file, split_ == Split::kValidation,
                                           CountdownSource::Use::kDemonstrations);
      source.size = std::min(source.size, max_rows_ - rows_);
      return std::make_shared<MadeDemonstrations>(source, maker_,
                                                  std::exchange(rows_, rows_ + source.size));
    }
    std::vector<SftExample> examples;
    for_each_row(file, [&](const Json& row, const std::string& place) {
      if (rows_ < max_rows_) add(row, rows_++, place, examples);
    });
    return std::make_shared<LoadedItems<SftExample>>(std::move(examples));
  }

  int64_t left_out() const { return left_out_; }

 private:
  void add(const Json& row, int64_t number, const std::string& place,
           std::vector<SftExample>& examples) {
    if (auto chats = maker_->renderer().try_conversation(row, place)) {
      for (ChatTokens& chat : *chats) add_conversation(std::move(chat), number, place, examples);
      return;
    }
    auto prompt = maker_->renderer().try_tokens(maker_->renderer().text(row, place), place);
    const std::string response_key = response_field(row, options_);
    const Json& field =
        require_field(row, response_key.empty() ? options_.response_key : response_key, place,
                      "data.response_key");
    TLT_CHECK_INPUT(field.is_string(), place, ": the response must be a text");
    const std::vector<int32_t> response = maker_->response_tokens(field.get<std::string>());
    const bool is_long = std::ssize(response) > options_.max_response_length;
    TLT_CHECK_INPUT(!is_long || options_.filter_overlong_prompts, place, ": the response has ",
                    response.size(), " tokens and data.max_response_length is ",
                    options_.max_response_length,
                    "; raise it, or set data.filter_overlong_prompts=true");
    if (!prompt || is_long) {
      ++left_out_;
    } else {
      examples.push_back(maker_->join(std::move(*prompt), response, number));
    }
  }

  void add_conversation(ChatTokens chat, int64_t number, const std::string& place,
                        std::vector<SftExample>& examples) {
    const int64_t limit = options_.max_prompt_length + options_.max_response_length;
    const bool is_long = std::ssize(chat.tokens) > limit;
    TLT_CHECK_INPUT(!is_long || options_.filter_overlong_prompts, place, ": the conversation has ",
                    chat.tokens.size(),
                    " tokens, and data.max_prompt_length + data.max_response_length is ", limit,
                    "; raise them, or set data.filter_overlong_prompts=true");
    if (is_long) {
      ++left_out_;
    } else {
      examples.push_back(maker_->weigh(std::move(chat), number));
    }
  }

  const DataOptions& options_;
  const Split split_;
  const std::shared_ptr<const ExampleMaker> maker_;
  const int64_t max_rows_;
  int64_t rows_ = 0;
  int64_t left_out_ = 0;
};

}  // namespace

SftDataset SftDataset::load(const DataOptions& options, const tokenizer::Tokenizer& tokenizer,
                            Split split) {
  options.check();
  const SplitFiles named = options.files_of(split);
  SftDataset dataset;
  SftLoader loader(options, tokenizer, split);
  for (size_t i = 0; i < named.files.size(); ++i)
    dataset.sources_.add(loader.read(named.files[i]), named.weight(i));
  dataset.left_out_ = loader.left_out();
  TLT_CHECK_INPUT(dataset.size() > 0, named.option, ": no examples in ", named.files[0],
                  named.files.size() > 1 ? " and the other files" : "", " (", dataset.left_out_,
                  " were too long); give one row a line");
  return dataset;
}

}  // namespace tlt::data

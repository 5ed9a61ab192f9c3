// SPDX-License-Identifier: Apache-2.0
#include "data/sft_dataset.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "data/countdown_source.h"
#include "data/example_maker.h"
#include "data/prompt_renderer.h"
#include "data/row_fields.h"
#include "data/row_numbers.h"
#include "data/rows.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kMaxAttempts = 1000;  // to make a demonstration that is short enough

// The example of a generated problem, for row `number`.
SftExample generated_example(const CountdownSource& source, const ExampleMaker& maker,
                             int64_t index, int64_t number) {
  for (uint32_t attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const auto made = source.demonstration(index, attempt);
    const std::vector<int32_t> response = maker.response_tokens(made.response);
    auto prompt = maker.renderer().try_tokens(made.problem.prompt(), "countdown");
    if (prompt && std::ssize(response) <= maker.max_response_length())
      return maker.join(std::move(*prompt), response, number);
  }
  throw InputError(
      "none of " + std::to_string(kMaxAttempts) + " countdown demonstrations fits into " +
      std::to_string(maker.max_response_length()) + " tokens; raise data.max_response_length");
}

// Reads the files in order and counts rows.
class SftLoader {
 public:
  SftLoader(const DataOptions& options, const tokenizer::Tokenizer& tokenizer, Split split)
      : options_(options),
        maker_(std::make_shared<ExampleMaker>(options, tokenizer)),
        numbers_(options, split) {}

  std::shared_ptr<const Source<SftExample>> read(const std::string& file) {
    if (CountdownSource::is_named_by(file)) {
      const auto rows = numbers_.generated(file, CountdownSource::Use::kDemonstrations);
      return std::make_shared<GeneratedItems<SftExample>>(
          rows.source.size, [rows, maker = maker_](int64_t index) {
            return generated_example(rows.source, *maker, index, rows.first_row + index);
          });
    }
    std::vector<SftExample> examples;
    for_each_row(file, [&](const Json& row, const std::string& place) {
      if (!numbers_.is_full()) add(row, numbers_.next(), place, examples);
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
    const auto response = maker_->try_response(field, "response", place);
    if (!prompt || !response) {
      ++left_out_;
    } else {
      examples.push_back(maker_->join(std::move(*prompt), *response, number));
    }
  }

  void add_conversation(ChatTokens chat, int64_t number, const std::string& place,
                        std::vector<SftExample>& examples) {
    if (auto example = maker_->try_conversation(std::move(chat), number, place)) {
      examples.push_back(std::move(*example));
    } else {
      ++left_out_;
    }
  }

  const DataOptions& options_;
  const std::shared_ptr<const ExampleMaker> maker_;
  RowNumbers numbers_;
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

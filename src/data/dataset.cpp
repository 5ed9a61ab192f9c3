// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "data/countdown_source.h"
#include "data/prompt_renderer.h"
#include "data/rows.h"

namespace tlt::data {
namespace {

using Json = nlohmann::json;

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::string ground_truth_of(const Json& row, const DataOptions& options, const std::string& place) {
  const std::string answer =
      text_of(require_field(row, options.answer_key, place, "data.answer_key"));
  if (options.answer_after.empty()) return answer;
  const size_t mark = answer.rfind(options.answer_after);
  TLT_CHECK_INPUT(mark != std::string::npos, place, ": no \"", options.answer_after,
                  "\" in the answer; set data.answer_after");
  return trimmed(answer.substr(mark + options.answer_after.size()));
}

class MadeProblems final : public Source<Prompt> {
 public:
  MadeProblems(CountdownSource source, Tokenizer tokenizer, const DataOptions& options,
               int64_t first_id)
      : source_(source),
        tokenizer_(std::move(tokenizer)),
        data_source_(options.data_source.empty() ? kCountdownDataSource : options.data_source),
        max_prompt_length_(options.max_prompt_length),
        first_id_(first_id) {}

  int64_t size() const override { return source_.size; }

  Prompt item(int64_t index) const override {
    const CountdownProblem problem = source_.problem(index);
    Prompt prompt{.id = static_cast<uint32_t>(first_id_ + index),
                  .tokens = tokenizer_.encode(problem.prompt()),
                  .text = problem.prompt(),
                  .data_source = data_source_,
                  .ground_truth = problem.ground_truth(),
                  .extra_info = Json::object()};
    TLT_CHECK_INPUT(std::ssize(prompt.tokens) <= max_prompt_length_, "the prompt ", prompt.text,
                    " has ", prompt.tokens.size(),
                    " tokens; raise data.max_prompt_length=", max_prompt_length_);
    return prompt;
  }

 private:
  const CountdownSource source_;
  const Tokenizer tokenizer_;
  const std::string data_source_;
  const int64_t max_prompt_length_, first_id_;
};

// Reads the files in order and counts rows.
class DatasetLoader {
 public:
  DatasetLoader(const DataOptions& options, const Tokenizer& tokenizer, Split split,
                const RowCheck& check)
      : options_(options),
        tokenizer_(tokenizer),
        split_(split),
        check_(check),
        renderer_(options, tokenizer),
        max_rows_(options.files_of(split).max_rows) {}

  std::shared_ptr<const Source<Prompt>> read(const std::string& file) {
    if (CountdownSource::is_named_by(file)) {
      auto source = CountdownSource::parse(file, split_ == Split::kValidation,
                                           CountdownSource::Use::kProblems);
      source.size = std::min(source.size, max_rows_ - rows_);
      auto problems = std::make_shared<MadeProblems>(source, tokenizer_, options_,
                                                     std::exchange(rows_, rows_ + source.size));
      if (problems->size() > 0) check(problems->item(0), file);
      return problems;
    }
    std::vector<Prompt> prompts;
    for_each_row(file, [&](const Json& row, const std::string& place) {
      if (rows_ < max_rows_) add(row, place, prompts);
    });
    return std::make_shared<LoadedItems<Prompt>>(std::move(prompts));
  }

  int64_t left_out() const { return left_out_; }

 private:
  void add(const Json& row, const std::string& place, std::vector<Prompt>& prompts) {
    const auto id = static_cast<uint32_t>(rows_++);
    Prompt prompt{.id = id,
                  .tokens = {},
                  .text = renderer_.text(row, place),
                  .data_source = options_.data_source,
                  .ground_truth = ground_truth_of(row, options_, place),
                  .extra_info = Json::object()};
    if (prompt.data_source.empty()) {
      prompt.data_source = text_of(require_field(row, options_.reward_fn_key, place,
                                                 "data.reward_fn_key or data.data_source"));
    }
    if (const Json* extra = find_field(row, "extra_info")) prompt.extra_info = *extra;
    auto tokens = renderer_.try_tokens(prompt.text, place);
    if (!tokens) {
      ++left_out_;
      return;
    }
    prompt.tokens = std::move(*tokens);
    check(prompt, place);
    prompts.push_back(std::move(prompt));
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
  const Tokenizer& tokenizer_;
  const Split split_;
  const RowCheck& check_;
  const PromptRenderer renderer_;
  const int64_t max_rows_;
  int64_t rows_ = 0;
  int64_t left_out_ = 0;
};

}  // namespace

Dataset Dataset::load(const DataOptions& options, const Tokenizer& tokenizer, Split split,
                      const RowCheck& check) {
  options.check();
  const SplitFiles named = options.files_of(split);
  Dataset dataset;
  DatasetLoader loader(options, tokenizer, split, check);
  for (const std::string& file : named.files) dataset.sources_.add(loader.read(file));
  dataset.left_out_ = loader.left_out();
  TLT_CHECK_INPUT(dataset.size() > 0, named.option, ": no prompts in ", named.files[0],
                  named.files.size() > 1 ? " and the other files" : "", " (", dataset.left_out_,
                  " were longer than data.max_prompt_length); give one row a line");
  return dataset;
}

}  // namespace tlt::data

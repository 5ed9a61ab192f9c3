// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.h"

#include <algorithm>
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

}  // namespace

class Dataset::Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  virtual Prompt prompt(int64_t index) const = 0;
};

namespace {

class LoadedRows : public Dataset::Source {
 public:
  explicit LoadedRows(std::vector<Prompt> prompts) : prompts_(std::move(prompts)) {}
  int64_t size() const override { return std::ssize(prompts_); }
  Prompt prompt(int64_t index) const override { return prompts_[index]; }

 private:
  const std::vector<Prompt> prompts_;
};

class MadeProblems : public Dataset::Source {
 public:
  MadeProblems(CountdownSource source, Tokenizer tokenizer, const DataOptions& options,
               int64_t first_id)
      : source_(source),
        tokenizer_(std::move(tokenizer)),
        data_source_(options.data_source.empty() ? kCountdownDataSource : options.data_source),
        max_prompt_length_(options.max_prompt_length),
        first_id_(first_id) {}

  int64_t size() const override { return source_.size; }

  Prompt prompt(int64_t index) const override {
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

}  // namespace

// Reads the files in order and counts rows.
class DatasetLoader {
 public:
  DatasetLoader(const DataOptions& options, const Tokenizer& tokenizer, Split split)
      : options_(options), tokenizer_(tokenizer), split_(split), renderer_(options, tokenizer) {
    const int64_t limit =
        split == Split::kTrain ? options.train_max_samples : options.val_max_samples;
    max_rows_ = limit < 0 ? int64_t{UINT32_MAX} : limit;
  }

  std::shared_ptr<const Dataset::Source> read(const std::string& file) {
    if (CountdownSource::is_named_by(file)) {
      auto source = CountdownSource::parse(file, split_ == Split::kValidation,
                                           CountdownSource::Use::kProblems);
      source.size = std::min(source.size, max_rows_ - rows_);
      return std::make_shared<MadeProblems>(source, tokenizer_, options_,
                                            std::exchange(rows_, rows_ + source.size));
    }
    std::vector<Prompt> prompts;
    for_each_row(file, [&](const Json& row, const std::string& place) {
      if (rows_ < max_rows_) add(row, place, prompts);
    });
    return std::make_shared<LoadedRows>(std::move(prompts));
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
    prompts.push_back(std::move(prompt));
  }

  const DataOptions& options_;
  const Tokenizer& tokenizer_;
  const Split split_;
  const PromptRenderer renderer_;
  int64_t max_rows_;
  int64_t rows_ = 0;
  int64_t left_out_ = 0;
};

Dataset Dataset::load(const DataOptions& options, const Tokenizer& tokenizer, Split split) {
  options.check();
  const bool is_train = split == Split::kTrain;
  const char* option = is_train ? "data.train_files" : "data.val_files";
  const auto& files = is_train ? options.train_files : options.val_files;
  TLT_CHECK_INPUT(!files.empty(), option, " is empty; give .jsonl files or countdown:seed=…");
  Dataset dataset;
  DatasetLoader loader(options, tokenizer, split);
  for (const std::string& file : files) {
    dataset.sources_.push_back(loader.read(file));
    dataset.size_ += dataset.sources_.back()->size();
  }
  dataset.left_out_ = loader.left_out();
  TLT_CHECK_INPUT(dataset.size_ > 0, option, ": no prompts in ", files[0],
                  files.size() > 1 ? " and the other files" : "", " (", dataset.left_out_,
                  " were longer than data.max_prompt_length); give one row a line");
  return dataset;
}

Prompt Dataset::prompt(int64_t index) const {
  TLT_CHECK(index >= 0 && index < size_, index, " of ", size_);
  for (const auto& source : sources_) {
    if (index < source->size()) return source->prompt(index);
    index -= source->size();
  }
  TLT_CHECK(false, "sizes of sources changed");
  return {};
}

}  // namespace tlt::data

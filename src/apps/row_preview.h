// RowPreview: the rows of a data file as a run reads them, for `tlt data inspect`: the fields it
// reads, the first rows as the model gets them, and the lengths of all rows.
//
// Threading  one thread.
//
//   RowPreview preview(options.data, model);
//   for (…) preview.add(row, place);           // prints the first rows
//   preview.print_lengths();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/preference_dataset.h"
#include "data/prompt_renderer.h"

namespace tlt::apps {

class RowPreview {
 public:
  // Renders and counts tokens with the tokenizer and the chat template of the model folder. Empty:
  // strings are printed as in the file, and lengths are in bytes.
  RowPreview(const data::DataOptions& options, const std::string& model);

  // InputError: as in a run, without limits of length.
  void add(const nlohmann::ordered_json& row, const std::string& place);

  // REQUIRES: at least one row was added.
  void print_lengths() const;

 private:
  // A string that the model reads or is trained on.
  struct Part {
    std::string name;  // "prompt", "response", "chosen", "rejected", "conversation"
    std::string text;
    int64_t length = 0;
  };
  std::vector<Part> parts_of(const nlohmann::ordered_json& row, const std::string& place) const;
  std::vector<Part> parts_of_pair(const nlohmann::ordered_json& row,
                                  const std::string& place) const;
  Part conversation(const nlohmann::ordered_json& row, const std::string& place) const;
  Part part(const char* name, std::string text) const;
  const char* unit() const { return tokenizer_ ? "tokens" : "bytes"; }

  const data::DataOptions options_;  // without limits of length
  const std::string model_;
  std::optional<tokenizer::Tokenizer> tokenizer_;
  std::optional<data::PromptRenderer> renderer_;
  std::optional<data::PairMaker> pairs_;  // set by the first row of tlt dpo
  int64_t rows_ = 0;
  int64_t texts_without_template_ = 0;  // prompts of a model that has a chat template
  std::vector<int64_t> prompts_, responses_, conversations_;  // lengths
};

}  // namespace tlt::apps

// SPDX-License-Identifier: Apache-2.0
#include "data/data_options.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>

#include "base/check.h"

namespace tlt::data {
namespace {

void check_choice(std::string_view name, const std::string& value,
                  std::initializer_list<std::string_view> known) {
  std::string list;
  for (const std::string_view choice : known) list.append(list.empty() ? "" : ", ").append(choice);
  TLT_CHECK_INPUT(std::ranges::find(known, value) != known.end(), "data.", name, " is \"", value,
                  "\"; give one of ", list);
}

void check_from(std::string_view name, int64_t value, int64_t least) {
  TLT_CHECK_INPUT(value >= least, "data.", name, " is ", value, "; give ", least, " or more");
}

const std::vector<double> kNoWeights;

void check_weights(const std::vector<double>& weights, size_t files) {
  if (weights.empty()) return;
  TLT_CHECK_INPUT(weights.size() == files, "data.train_weights has ", weights.size(),
                  " weights and data.train_files ", files, " files; give one for each");
  double most = 0;
  for (const double weight : weights) {
    TLT_CHECK_INPUT(weight >= 0 && std::isfinite(weight), "data.train_weights has ", weight,
                    "; give numbers from 0");
    most = std::max(most, weight);
  }
  TLT_CHECK_INPUT(most > 0, "data.train_weights are all 0; give one file a weight");
}

}  // namespace

void DataOptions::check() const {
  check_weights(train_weights, train_files.size());
  check_from("train_batch_size", train_batch_size, 1);
  check_from("gen_batch_size", gen_batch_size, 0);
  check_from("train_max_samples", train_max_samples, -1);
  check_from("val_max_samples", val_max_samples, -1);
  check_from("max_prompt_length", max_prompt_length, 1);
  check_from("max_response_length", max_response_length, 1);
  check_from("seed", seed, 0);
  check_choice("truncation", truncation, {"error", "left", "right", "middle"});
  if (!chat_template.ends_with(".jinja"))
    check_choice("chat_template", chat_template, {"auto", "model", "chatml", "none", "FILE.jinja"});
}

SplitFiles DataOptions::files_of(Split split) const {
  const bool is_train = split == Split::kTrain;
  const int64_t limit = is_train ? train_max_samples : val_max_samples;
  const SplitFiles named{.option = is_train ? "data.train_files" : "data.val_files",
                         .files = is_train ? train_files : val_files,
                         .max_rows = limit < 0 ? int64_t{UINT32_MAX} : limit,
                         .weights = is_train ? train_weights : kNoWeights};
  TLT_CHECK_INPUT(!named.files.empty(), named.option,
                  " is empty; give .parquet or .jsonl files or countdown:seed=…");
  return named;
}

}  // namespace tlt::data

// SPDX-License-Identifier: Apache-2.0
#include "data/data_options.h"

#include <algorithm>
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

}  // namespace

void DataOptions::check() const {
  check_from("train_batch_size", train_batch_size, 1);
  check_from("val_batch_size", val_batch_size, 0);
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
                         .max_rows = limit < 0 ? int64_t{UINT32_MAX} : limit};
  TLT_CHECK_INPUT(!named.files.empty(), named.option,
                  " is empty; give .jsonl files or countdown:seed=…");
  return named;
}

}  // namespace tlt::data

// tlt data inspect: what is in a data file, and what a run would make of it.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "apps/commands.h"
#include "apps/recipe.h"
#include "base/check.h"
#include "base/options.h"
#include "data/data_files.h"
#include "data/parquet_rows.h"
#include "data/prompt_renderer.h"
#include "data/row_fields.h"
#include "data/rows.h"
#include "data/schema.h"
#include "rl/run_options.h"

namespace tlt::apps {
namespace {

using RowJson = nlohmann::ordered_json;

constexpr size_t kShownPrompts = 3;

// In the order of the file and with the types that it declares.
std::vector<data::Schema::Field> in_parquets_words(
    const std::vector<data::Schema::Field>& seen,
    const std::vector<data::ParquetRows::Column>& columns) {
  std::vector<data::Schema::Field> fields;
  for (const auto& column : columns) {
    const auto same = std::ranges::find(seen, column.name, &data::Schema::Field::name);
    fields.push_back({column.name, column.type, same == seen.end() ? 0 : same->rows});
  }
  return fields;
}

bool are_same(const std::vector<data::ParquetRows::Column>& some,
              const std::vector<data::ParquetRows::Column>& others) {
  return std::ranges::equal(some, others, [](const auto& one, const auto& other) {
    return one.name == other.name && one.type == other.type;
  });
}

// The files that were asked for by one name.
struct NamedFiles {
  std::string name;
  std::vector<std::string> files;
};

// One pass over the files; each line is a field, its type and, where some rows lack it, how many
// have it. Returns the number of rows.
int64_t print_schema(const NamedFiles& named) {
  data::Schema schema;
  std::vector<data::ParquetRows::Column> columns;
  std::string lines, groups;
  bool has_columns = true;  // every file declares the same
  for (const std::string& file : named.files) {
    const std::unique_ptr<data::RowReader> rows = data::open_rows(file);
    const int64_t before = schema.rows();
    for (RowJson row; rows->try_next(row);) schema.add(row);
    const auto* parquet = dynamic_cast<const data::ParquetRows*>(rows.get());
    if (parquet && columns.empty()) columns = parquet->columns();
    has_columns = has_columns && parquet && are_same(columns, parquet->columns());
    groups = parquet ? fmt::format(" in {} row groups", parquet->row_groups()) : "";
    lines += fmt::format("  {}: {} rows{}\n", file, schema.rows() - before, groups);
  }
  if (named.files.size() == 1) {
    fmt::print("{}: {} rows{}\n", named.files[0], schema.rows(), groups);
  } else {
    fmt::print("{}: {} files, {} rows\n{}fields\n", named.name, named.files.size(), schema.rows(),
               lines);
  }
  std::vector<data::Schema::Field> fields = schema.fields();
  if (has_columns) fields = in_parquets_words(fields, columns);
  for (const auto& field : fields)
    fmt::print("  {:<16} {}{}\n", field.name, field.type,
               field.rows == schema.rows() ? "" : fmt::format(" ({} rows)", field.rows));
  return schema.rows();
}

std::string or_none(const std::string& field, const char* option) {
  return field.empty() ? fmt::format("none; set {}", option) : field;
}

// Which fields a run takes from such a row.
void print_roles(const RowJson& row, const data::DataOptions& options) {
  const bool has_prompt = data::find_field(row, options.prompt_key) != nullptr;
  fmt::print("a run reads\n  {:<16} {}\n  {:<16} {}\n  {:<16} {}\n", "prompt",
             options.prompt_template.empty()
                 ? or_none(has_prompt ? options.prompt_key : "", "data.prompt_key")
                 : "data.prompt_template",
             "answer", or_none(data::answer_field(row, options), "data.answer_key"), "data source",
             options.data_source.empty() ? or_none(data::source_field(row, options),
                                                   "data.reward_fn_key or data.data_source")
                                         : options.data_source);
}

// Prompts as a run makes them or, without a tokenizer, as the rows have them.
class PromptReader {
 public:
  PromptReader(const data::DataOptions& options, const std::string& model) : options_(options) {
    if (model.empty()) return;
    data::DataOptions unlimited = options;
    unlimited.max_prompt_length = INT64_MAX;
    unlimited.filter_overlong_prompts = false;
    renderer_.emplace(unlimited, data::Tokenizer::load(model));
  }

  const char* unit() const { return renderer_ ? "tokens" : "bytes"; }

  std::string text(const RowJson& row, const std::string& place) const {
    data::check_prompt_type(row, options_, place);
    if (renderer_) return renderer_->text(row, place);
    if (!options_.prompt_template.empty())
      return data::PromptTemplate(options_.prompt_template).render(row, place);
    const RowJson& prompt = data::require_field(row, options_.prompt_key, place, "data.prompt_key");
    if (prompt.is_string()) return prompt.get<std::string>();
    std::string text;
    for (const RowJson& message : prompt) text += (text.empty() ? "" : "\n") + message.dump();
    return text;
  }

  int64_t length(const std::string& text, const std::string& place) const {
    return renderer_ ? std::ssize(*renderer_->try_tokens(text, place)) : std::ssize(text);
  }

 private:
  const data::DataOptions& options_;
  std::optional<data::PromptRenderer> renderer_;
};

void print_lengths(std::vector<int64_t> lengths, const char* unit, int64_t limit) {
  std::ranges::sort(lengths);
  const auto at = [&](double share) {
    return lengths[static_cast<size_t>(share * static_cast<double>(lengths.size() - 1))];
  };
  fmt::print("prompts in {}: shortest {}, median {}, 90 % up to {}, longest {}\n", unit, at(0),
             at(0.5), at(0.9), at(1));
  const auto longer = lengths.end() - std::ranges::upper_bound(lengths, limit);
  if (std::string_view(unit) == "tokens")
    fmt::print("longer than data.max_prompt_length={}: {}\n", limit, longer);
}

// The first prompts, then the lengths of all.
void print_prompts(const NamedFiles& named, const data::DataOptions& options,
                   const std::string& model) {
  const PromptReader reader(options, model);
  std::vector<int64_t> lengths;
  const auto add = [&](const RowJson& row, const std::string& place) {
    if (lengths.empty()) print_roles(row, options);
    const std::string text = reader.text(row, place);
    lengths.push_back(reader.length(text, place));
    if (lengths.size() > kShownPrompts) return;
    const std::string answer = data::answer_field(row, options);
    fmt::print("---- {}: {} {}{}\n{}\n", place, lengths.back(), reader.unit(),
               answer.empty() ? "" : ", answer " + data::ground_truth_of(row, options, place),
               text);
  };
  for (const std::string& file : named.files) data::for_each_row(file, add);
  fmt::print("----\n");
  print_lengths(std::move(lengths), reader.unit(), options.max_prompt_length);
}

int run_inspect(const Arguments& arguments) {
  std::string name, model;
  std::vector<std::string> overrides;
  CLI::App app(
      "The fields of data files, which of them a run reads, the first three prompts as the model "
      "gets them, and how long all are.");
  app.add_option("FILE", name,
                 "A .parquet, .jsonl or .json file, a folder of them, or a pattern in quotes.")
      ->required();
  app.add_option("KEY=VALUE", overrides, "Options of a recipe, as data.prompt_key=question.");
  app.add_option(
      "--model", model,
      "Folder with tokenizer.json: renders the prompts and counts tokens; else the rows' "
      "own text is shown, in bytes.");
  if (!try_parse(app, arguments)) return 0;

  rl::RunOptions options;
  for (const std::string& text : overrides) apply_override(options, text);
  options.data.check();
  const NamedFiles named = {name, data::find_data_files(name, "FILE")};
  const int64_t rows = print_schema(named);
  TLT_CHECK_INPUT(rows > 0, name, ": no rows; give one row a line");
  print_prompts(named, options.data, model);
  return 0;
}

constexpr Command kActions[] = {
    {"inspect", "The fields of a data file, its prompts and their lengths.", run_inspect},
};

}  // namespace

int run_data(const Arguments& arguments) { return run_command(kActions, arguments); }

}  // namespace tlt::apps

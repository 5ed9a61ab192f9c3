// tlt data inspect: the columns of a data file, and its rows as a run reads them.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/commands.h"
#include "apps/row_preview.h"
#include "base/check.h"
#include "base/sentence.h"
#include "cli/recipe.h"
#include "data/data_files.h"
#include "data/parquet_rows.h"
#include "data/rows.h"
#include "data/schema.h"
#include "run/run_options.h"

namespace tlt::apps {
namespace {

using RowJson = nlohmann::ordered_json;

// Fields in the order of the file, with the declared types.
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

// The files that one argument names.
struct NamedFiles {
  std::string name;
  std::vector<std::string> files;
};

// Prints a line per field with its type and, if some rows lack it, the number of rows that have it.
// Returns the number of rows.
int64_t print_schema(const NamedFiles& named) {
  data::Schema schema;
  std::vector<data::ParquetRows::Column> columns;
  std::string lines, groups;
  bool has_columns = true;  // all files declare the same columns
  for (const std::string& file : named.files) {
    const std::unique_ptr<data::RowReader> rows = data::open_rows(file);
    const int64_t before = schema.rows();
    for (RowJson row; rows->try_next(row);) schema.add(row);
    const auto* parquet = dynamic_cast<const data::ParquetRows*>(rows.get());
    if (parquet && columns.empty()) columns = parquet->columns();
    has_columns = has_columns && parquet && are_same(columns, parquet->columns());
    groups = parquet ? " in " + counted(parquet->row_groups(), "row group") : "";
    lines += fmt::format("  {}: {}{}\n", one_sentence(file), counted(schema.rows() - before, "row"),
                         groups);
  }
  if (named.files.size() == 1) {
    fmt::print("{}: {}{}\n", one_sentence(named.files[0]), counted(schema.rows(), "row"), groups);
  } else {
    fmt::print("{}: {}, {}\n{}fields\n", one_sentence(named.name),
               counted(std::ssize(named.files), "file"), counted(schema.rows(), "row"), lines);
  }
  std::vector<data::Schema::Field> fields = schema.fields();
  if (has_columns) fields = in_parquets_words(fields, columns);
  for (const auto& field : fields)
    fmt::print("  {:<16} {}{}\n", one_sentence(field.name), one_sentence(field.type),
               field.rows == schema.rows() ? "" : fmt::format(" ({})", counted(field.rows, "row")));
  return schema.rows();
}

int run_inspect(const cli::Arguments& arguments) {
  std::string name, model;
  std::vector<std::string> overrides;
  CLI::App app(
      "The columns of data files, which of them a run reads, the first three rows as the model "
      "gets them, and the lengths of all rows. For prompts (tlt train), responses or "
      "conversations (tlt sft) and pairs (tlt dpo).");
  app.add_option("FILE", name,
                 "A .parquet, .jsonl or .json file, a folder of them, or a pattern in quotes.")
      ->required();
  app.add_option("KEY=VALUE", overrides, "Options of a recipe, e.g. data.prompt_key=question.");
  app.add_option("--model", model,
                 "Model folder: applies its chat template and counts tokens; without it rows are "
                 "printed as in the file, with lengths in bytes.");
  if (!cli::try_parse(app, arguments)) return 0;

  run::RunOptions options;
  for (const std::string& text : overrides) cli::apply_override(options, text);
  options.data.check();
  const NamedFiles named = {name, data::find_data_files(name, "FILE")};
  const int64_t rows = print_schema(named);
  TLT_CHECK_INPUT(rows > 0, name, ": no rows; give one row per line");
  RowPreview preview(options.data, model);
  for (const std::string& file : named.files)
    data::for_each_row(
        file, [&](const RowJson& row, const std::string& place) { preview.add(row, place); });
  preview.print_lengths();
  return 0;
}

constexpr cli::Command kActions[] = {
    {"inspect", "The fields of a data file, its prompts and their lengths.", run_inspect},
};

}  // namespace

int run_data(const cli::Arguments& arguments) { return cli::run_command(kActions, arguments); }

}  // namespace tlt::apps

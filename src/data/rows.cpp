// SPDX-License-Identifier: Apache-2.0
#include "data/rows.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files.h"
#include "base/json_limits.h"
#include "base/json_lines.h"
#include "data/parquet_rows.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxJsonBytes = int64_t{1} << 30;

void check_object(const Json& row, const std::string& place) {
  TLT_CHECK_INPUT(row.is_object(), place,
                  ": a row must be a JSON object, like {\"prompt\": \"…\"}");
}

std::string names_of(const Json& row) {
  std::string names;
  for (const auto& [name, value] : row.items())
    names.append(names.empty() ? "" : ", ").append(name);
  return names.empty() ? "none" : names;
}

class LineRows final : public RowReader {
 public:
  explicit LineRows(const std::string& path) : lines_(path) {}

  bool try_next(Json& row) override {
    if (!lines_.try_next(row)) return false;
    check_object(row, place());
    return true;
  }

  std::string place() const override { return lines_.place(); }

 private:
  JsonLinesReader lines_;
};

Json read_json(const std::string& path) {
  const std::string text = read_file(path, kMaxJsonBytes);
  check_json_limits(text, path);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

class ListRows final : public RowReader {
 public:
  explicit ListRows(const std::string& path) : path_(path), rows_(read_json(path)) {
    TLT_CHECK_INPUT(rows_.is_array(), path,
                    ": not a JSON list of rows; a file with one row per line is named .jsonl");
  }

  bool try_next(Json& row) override {
    if (next_ == rows_.size()) return false;
    row = std::move(rows_[next_++]);
    check_object(row, place());
    return true;
  }

  std::string place() const override { return path_ + ": row " + std::to_string(next_); }

 private:
  const std::string path_;
  Json rows_;
  size_t next_ = 0;
};

// The value, which may be null; nullptr: the row has no such field.
const Json* find_value(const Json& row, std::string_view name) {
  if (!row.is_object()) return nullptr;
  const auto found = row.find(std::string(name));
  if (found != row.end()) return &*found;
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const auto outer = row.find(std::string(name.substr(0, dot)));
  return outer == row.end() ? nullptr : find_value(*outer, name.substr(dot + 1));
}

}  // namespace

std::unique_ptr<RowReader> open_rows(const std::string& path) {
  const std::string kind = std::filesystem::path(path).extension().string();
  if (kind == ".jsonl") return std::make_unique<LineRows>(path);
  if (kind == ".parquet") return std::make_unique<ParquetRows>(path);
  if (kind == ".json") return std::make_unique<ListRows>(path);
  throw InputError(path +
                   ": not a data file that can be read; give .parquet, .jsonl, .json or "
                   "countdown:seed=…");
}

void for_each_row(const std::string& path,
                  const std::function<void(const Json&, const std::string&)>& visit) {
  const std::unique_ptr<RowReader> rows = open_rows(path);
  for (Json row; rows->try_next(row);) visit(row, rows->place());
}

const Json* find_field(const Json& row, std::string_view name) {
  const Json* found = find_value(row, name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const Json& require_field(const Json& row, std::string_view name, const std::string& place,
                          std::string_view option) {
  const Json* field = find_value(row, name);
  TLT_CHECK_INPUT(field == nullptr || !field->is_null(), place, ": the field \"", name,
                  "\" is null; give it a value, or set ", option);
  TLT_CHECK_INPUT(field != nullptr, place, ": no field \"", name, "\"; set ", option,
                  " (the row has: ", names_of(row), ")");
  return *field;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace tlt::data

// SPDX-License-Identifier: Apache-2.0
#include "data/rows.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files.h"
#include "base/json_lines.h"

namespace tlt::data {
namespace {

using Json = nlohmann::json;

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

}  // namespace

void for_each_row(const std::string& path,
                  const std::function<void(const Json&, const std::string&)>& visit) {
  const std::string kind = std::filesystem::path(path).extension().string();
  TLT_CHECK_INPUT(kind == ".jsonl" || kind == ".json", path,
                  ": not a data file that can be read; give .jsonl, .json or countdown:seed=…");
  if (kind == ".jsonl") {
    JsonLinesReader reader(path);
    Json row;
    while (reader.try_next(row)) {
      check_object(row, reader.place());
      visit(row, reader.place());
    }
    return;
  }
  const Json rows =
      Json::parse(read_file(path, kMaxJsonBytes), nullptr, /*allow_exceptions=*/false);
  TLT_CHECK_INPUT(rows.is_array(), path,
                  ": not a JSON list of rows; a file with one row a line is named .jsonl");
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string place = path + ": row " + std::to_string(i + 1);
    check_object(rows[i], place);
    visit(rows[i], place);
  }
}

const Json* find_field(const Json& row, std::string_view name) {
  if (!row.is_object()) return nullptr;
  const auto found = row.find(std::string(name));
  if (found != row.end()) return found->is_null() ? nullptr : &*found;
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const auto outer = row.find(std::string(name.substr(0, dot)));
  return outer == row.end() ? nullptr : find_field(*outer, name.substr(dot + 1));
}

const Json& require_field(const Json& row, std::string_view name, const std::string& place,
                          std::string_view option) {
  const Json* field = find_field(row, name);
  TLT_CHECK_INPUT(field != nullptr, place, ": no field \"", name, "\"; set ", option,
                  " (the row has: ", names_of(row), ")");
  return *field;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace tlt::data

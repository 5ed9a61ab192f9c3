// Rows: the JSON objects of a data file, and access to their fields.
//
//   const auto rows = open_rows("train.parquet");
//   nlohmann::ordered_json row;
//   while (rows->try_next(row)) … use row; rows->place() is "train.parquet: row 17" …
//
// A .jsonl file (one object per line) is read line by line, a .json file (a list of objects) object
// by object, a .parquet file by parquet_rows.h: memory does not grow with the file. The JSON of a
// row has at most JsonLinesReader::kMaxLineBytes, and the limits of json_limits.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tlt::data {

class RowReader {
 public:
  virtual ~RowReader() = default;

  // The next row, an object; false at the end. InputError with the place: unreadable.
  [[nodiscard]] virtual bool try_next(nlohmann::ordered_json& row) = 0;

  // Location of the last row for error messages: "file:line" or "file: row 3".
  virtual std::string place() const = 0;
};

// InputError: no such file, another kind of file.
std::unique_ptr<RowReader> open_rows(const std::string& path);

// Calls visit(row, place) for each row of a file. InputError as open_rows() and RowReader.
void for_each_row(
    const std::string& path,
    const std::function<void(const nlohmann::ordered_json& row, const std::string& place)>& visit);

// The value of this field or, if there is none of that name, along the path that its dots describe
// ("reward_model.ground_truth"); nullptr: missing or null.
const nlohmann::ordered_json* find_field(const nlohmann::ordered_json& row, std::string_view name);

// As find_field(); InputError if there is none: lists the fields, and the option that names
// another.
const nlohmann::ordered_json& require_field(const nlohmann::ordered_json& row,
                                            std::string_view name, const std::string& place,
                                            std::string_view option);

// A string unchanged, anything else as JSON.
std::string text_of(const nlohmann::ordered_json& value);

}  // namespace tlt::data

// Schema: the fields of a file's rows and of what type their values are, as the rows say.
//
//   Schema schema;
//   for (Json row; rows->try_next(row);) schema.add(row);
//   schema.fields();      // {"prompt", "list of {content: text, role: text}", 24 rows}, …
//
// Not here   Parquet's own schema (parquet_rows.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

namespace tlt::data {

// "text", "whole number", "list of text", "{role: text, content: text}" …; null has none: "".
std::string type_of(const nlohmann::ordered_json& value);

class Schema {
 public:
  struct Field {
    std::string name;
    std::string type;  // several: "text or number"
    int64_t rows;      // that have it
  };

  void add(const nlohmann::ordered_json& row);

  int64_t rows() const { return rows_; }
  std::vector<Field> fields() const;

 private:
  struct Seen {
    std::set<std::string> types;
    int64_t rows = 0;
  };
  std::map<std::string, Seen> seen_;
  int64_t rows_ = 0;
};

}  // namespace tlt::data

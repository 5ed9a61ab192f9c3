// Schema: the fields of a file and the types of their values, as found in its rows.
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

// "text", "integer", "list of text", "{role: text, content: text}" …; "" for null.
std::string type_of(const nlohmann::ordered_json& value);

class Schema {
 public:
  struct Field {
    std::string name;
    std::string type;  // several: "text or number"
    int64_t rows;      // that have the field
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

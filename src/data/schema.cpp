// SPDX-License-Identifier: Apache-2.0
#include "data/schema.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostTypes = 4;  // of one field; objects with changing keys have a type per row

std::string joined(const std::set<std::string>& types) {
  std::string text;
  size_t named = 0;
  for (const std::string& type : types) {
    if (named == kMostTypes) return text + " or others";
    text += (named++ == 0 ? "" : " or ") + type;
  }
  return text;
}

std::string list_type(const Json& list) {
  std::set<std::string> types;
  for (const Json& item : list)
    if (!item.is_null()) types.insert(type_of(item));
  return types.empty() ? "list" : "list of " + joined(types);
}

std::string object_type(const Json& object) {
  std::map<std::string, std::string> types;  // the same for any order of the row's fields
  for (const auto& [name, value] : object.items())
    types[name] = value.is_null() ? "null" : type_of(value);
  std::string fields;
  for (const auto& [name, type] : types)
    fields += (fields.empty() ? "" : ", ") + name + ": " + type;
  return "{" + fields + "}";
}

}  // namespace

std::string type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return "text";
    case Json::value_t::boolean:
      return "true or false";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "integer";
    case Json::value_t::number_float:
      return "number";
    case Json::value_t::binary:
      return "bytes";
    case Json::value_t::array:
      return list_type(value);
    case Json::value_t::object:
      return object_type(value);
    default:
      return "";
  }
}

void Schema::add(const Json& row) {
  ++rows_;
  for (const auto& [name, value] : row.items()) {
    Seen& seen = seen_[name];
    if (value.is_null()) continue;
    ++seen.rows;
    if (seen.types.size() <= kMostTypes) seen.types.insert(type_of(value));
  }
}

std::vector<Schema::Field> Schema::fields() const {
  std::vector<Field> fields;
  for (const auto& [name, seen] : seen_)
    fields.push_back({name, seen.types.empty() ? "null" : joined(seen.types), seen.rows});
  return fields;
}

}  // namespace tlt::data

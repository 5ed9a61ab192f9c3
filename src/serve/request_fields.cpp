// SPDX-License-Identifier: Apache-2.0
#include "serve/request_fields.h"

#include "base/json_limits.h"
#include "serve/api_error.h"

namespace tlt::serve {
namespace {

std::string shown(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

ApiError wrong_type(const std::string& name, const nlohmann::ordered_json& value,
                    const char* wanted) {
  return bad_request(name + " is " + shown(value) + "; give " + wanted, name);
}

}  // namespace

RequestFields::RequestFields(std::string_view body) : object_(parse_limited_json(body)) {
  if (!object_.is_object())
    throw bad_request(
        "the body is not a JSON object, or it is nested or divided too much; give one JSON object");
}

const nlohmann::ordered_json* RequestFields::find(const std::string& name) {
  read_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

int64_t RequestFields::integer(const std::string& name, const Integers& range) {
  const Json* value = find(name);
  if (value == nullptr) return range.otherwise;
  const bool is_too_large = value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX;
  if (!value->is_number_integer() || is_too_large || value->get<int64_t>() < range.least ||
      value->get<int64_t>() > range.most)
    throw wrong_type(
        name, *value,
        ("an integer from " + std::to_string(range.least) + " to " + std::to_string(range.most))
            .c_str());
  return value->get<int64_t>();
}

double RequestFields::number(const std::string& name, double otherwise) {
  const Json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) throw wrong_type(name, *value, "a number");
  return value->get<double>();
}

bool RequestFields::flag(const std::string& name, bool otherwise) {
  const Json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) throw wrong_type(name, *value, "true or false");
  return value->get<bool>();
}

std::string RequestFields::text(const std::string& name) {
  const Json* value = find(name);
  if (value == nullptr) return "";
  if (!value->is_string()) throw wrong_type(name, *value, "a string");
  return value->get<std::string>();
}

std::vector<std::string> RequestFields::texts(const std::string& name) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) throw wrong_type(name, *value, "a string or a list of strings");
  std::vector<std::string> texts;
  for (const Json& item : *value) {
    if (!item.is_string()) throw wrong_type(name, item, "a string or a list of strings");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

std::vector<int64_t> RequestFields::integers(const std::string& name) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_array()) throw wrong_type(name, *value, "a list of integers");
  std::vector<int64_t> integers;
  for (const Json& item : *value) {
    if (!item.is_number_integer()) throw wrong_type(name, item, "a list of integers");
    integers.push_back(item.get<int64_t>());
  }
  return integers;
}

RequestFields RequestFields::object(const std::string& name) {
  RequestFields fields;
  const Json* value = find(name);
  if (value == nullptr) return fields;
  if (!value->is_object()) throw wrong_type(name, *value, "an object");
  fields.object_ = *value;
  return fields;
}

void RequestFields::ignore(std::initializer_list<const char*> names) {
  for (const char* name : names) read_.insert(name);
}

void RequestFields::accept_only(const std::string& name, const Json& neutral) {
  const Json* value = find(name);
  if (value != nullptr && *value != neutral)
    throw bad_request(name + " is not supported; leave it out", name);
}

void RequestFields::refuse_others() const {
  for (const auto& [name, value] : object_.items())
    if (!read_.contains(name) && !value.is_null())
      throw bad_request("unknown field " + name + "; docs/serving.md has those of a request", name);
}

}  // namespace tlt::serve

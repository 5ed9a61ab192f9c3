// RequestFields: the fields of a JSON request, each read once with its type and range.
//
// A field that no call has read is refused at the end, so that a mistyped or unsupported one does
// not silently change nothing. null counts as absent, as in OpenAI's API.
//
//   RequestFields fields(body);
//   const int64_t n = fields.integer("n", {.otherwise = 1, .least = 1, .most = 128});
//   fields.refuse_others();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::serve {

class RequestFields {
 public:
  using Json = nlohmann::ordered_json;

  struct Integers {
    int64_t otherwise = 0;  // when absent
    int64_t least = INT64_MIN, most = INT64_MAX;
  };

  // ApiError: the text is not a JSON object, or exceeds a limit of base/json_limits.h.
  explicit RequestFields(std::string_view body);

  // The value, or null when it is absent or null.
  const Json* find(const std::string& name);

  int64_t integer(const std::string& name, const Integers& range);
  double number(const std::string& name, double otherwise);
  bool flag(const std::string& name, bool otherwise);
  std::string text(const std::string& name);  // "" when absent
  // A string, or a list of strings.
  std::vector<std::string> texts(const std::string& name);
  std::vector<int64_t> integers(const std::string& name);
  // The fields of an object in the request; none when it is absent.
  RequestFields object(const std::string& name);

  // Accepts the field and ignores it: it says nothing about the tokens.
  void ignore(std::initializer_list<const char*> names);
  // Accepts the field only with this value, which has no effect.
  void accept_only(const std::string& name, const Json& neutral);

  // ApiError: a field that was not read.
  void refuse_others() const;

 private:
  RequestFields() = default;

  Json object_ = Json::object();
  std::set<std::string> read_;
};

}  // namespace tlt::serve

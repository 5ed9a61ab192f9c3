// Callables of a template: filters, tests, functions, methods of strings, lists and dictionaries.
// parse_jinja() rejects all others.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <deque>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat_template/jinja_value.h"

namespace tlt::chat_template {

struct JinjaArguments {
  JinjaValue::List positional;
  std::vector<std::pair<std::string, JinjaValue>> named;
};

// State of the rendering that calls need.
struct JinjaHost {
  JinjaMeter& meter;
  std::deque<JinjaNamespace>& namespaces;
  std::time_t now;
  int32_t depth = 0;  // nesting of filters that call filters
};

// Arguments by the position or name of a parameter.
//
//   const JinjaParameters given("join", arguments, {"d", "attribute"});
//   if (const JinjaValue* d = given[0]) …
class JinjaParameters {
 public:
  // JinjaFault: too many, of an unknown name, or given twice. REQUIRES: the arguments outlive this.
  JinjaParameters(std::string_view what, const JinjaArguments& arguments,
                  std::initializer_list<std::string_view> names);

  const JinjaValue* operator[](size_t i) const { return values_[i]; }
  // JinjaFault: not given.
  const JinjaValue& require(size_t i) const;

  // The argument as string or number, else the default. JinjaFault: of another kind.
  const std::string& text(size_t i) const;
  std::string text_or(size_t i, std::string_view standard) const;
  int64_t integer_or(size_t i, int64_t standard) const;
  bool is_true(size_t i, bool standard = false) const;

 private:
  const std::string_view what_;
  std::vector<const JinjaValue*> values_;
};

bool is_jinja_filter(std::string_view name);
bool is_jinja_test(std::string_view name);
bool is_jinja_function(std::string_view name);
bool is_jinja_method(std::string_view name);
bool is_loop_attribute(std::string_view name);

// REQUIRES: the filter exists. JinjaFault: not applicable to these values.
JinjaValue apply_jinja_filter(std::string_view name, const JinjaValue& input,
                              const JinjaArguments& arguments, JinjaHost& host);
bool apply_jinja_test(std::string_view name, const JinjaValue& input,
                      const JinjaArguments& arguments, JinjaHost& host);
JinjaValue call_jinja_function(std::string_view name, const JinjaArguments& arguments,
                               JinjaHost& host);

// JinjaFault: a value of that kind has no such method.
JinjaValue call_jinja_method(const JinjaValue& object, std::string_view name,
                             const JinjaArguments& arguments, JinjaHost& host);

}  // namespace tlt::chat_template

// What a template can call: filters, tests, methods of strings and dictionaries, functions.
// docs/chat_templates.md lists them; the parser rejects all others.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat_template/jinja_value.h"

namespace tlt::chat_template {

// The call of a builtin: the value before `|`, `is` or `.`, and an argument for each parameter.
class JinjaCall {
 public:
  // REQUIRES: the builtin's name and the values outlive this.
  JinjaCall(std::string_view name, const JinjaValue& input,
            const std::vector<std::optional<JinjaValue>>& arguments, JinjaMeter& meter)
      : input(input), meter(meter), name_(name), arguments_(arguments) {}

  const JinjaValue& input;
  JinjaMeter& meter;

  // nullptr: not given.
  const JinjaValue* operator[](size_t i) const { return arguments_[i] ? &*arguments_[i] : nullptr; }
  bool is_given(size_t i) const { return arguments_[i] && !arguments_[i]->is_none(); }
  // JinjaFault: not given; not of that kind.
  const JinjaValue& require(size_t i) const;
  const std::string& text(size_t i) const;
  int64_t integer_or(size_t i, int64_t standard) const;
  bool is_true(size_t i) const { return arguments_[i] && arguments_[i]->is_true(); }
  // JinjaFault: the input, of this kind, has no such method.
  [[noreturn]] void fail_method() const;

  // The input as printed text, and a new string of its kind.
  std::string text() const { return to_text(input, meter); }
  JinjaValue like(std::string text) const { return JinjaValue(std::move(text), input.is_markup()); }

 private:
  const std::string_view name_;
  const std::vector<std::optional<JinjaValue>>& arguments_;
};

struct JinjaBuiltin {
  std::string_view name;
  std::string_view parameters;  // names, separated by spaces
  JinjaValue (*call)(const JinjaCall& call);
};

// nullptr: not supported.
const JinjaBuiltin* try_jinja_filter(std::string_view name);
const JinjaBuiltin* try_jinja_test(std::string_view name);
const JinjaBuiltin* try_jinja_method(std::string_view name);

// The items in the order of their keys (strings without regard to case), as Jinja's `sort`.
JinjaValue sorted_by(std::vector<std::pair<JinjaValue, JinjaValue>> keyed, bool is_reversed,
                     JinjaMeter& meter);

// State of the rendering that functions need.
struct JinjaHost {
  JinjaMeter& meter;
  std::deque<JinjaNamespace>& namespaces;
  std::tm now;
};

struct JinjaArguments {
  JinjaValue::List positional;
  std::vector<std::pair<std::string, JinjaValue>> named;
};

struct JinjaFunction {
  std::string_view name;
  size_t most_arguments;  // by position
  bool takes_names;       // any
  JinjaValue (*call)(const JinjaArguments& arguments, JinjaHost& host);
};

// nullptr: not supported.
const JinjaFunction* try_jinja_function(std::string_view name);

}  // namespace tlt::chat_template

// SPDX-License-Identifier: Apache-2.0
#include "chat_template/jinja_operations.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "chat_template/jinja_text.h"

namespace tlt::chat_template {
namespace {

[[noreturn]] void fail_sign(std::string_view sign, const JinjaValue& a, const JinjaValue& b) {
  check_defined(a);
  check_defined(b);
  throw JinjaFault(fmt::format("{} {} {} is not possible", a.kind(), sign, b.kind()));
}

[[noreturn]] void fail_large() { throw JinjaFault("an integer exceeds 64 bits"); }

// With the sign of b, as in Python.
int64_t remainder(int64_t a, int64_t b) {
  if (b == 0) throw JinjaFault("a division by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

JinjaValue whole_arithmetic(std::string_view sign, int64_t a, int64_t b) {
  int64_t result = 0;
  bool is_large = false;
  if (sign == "+") {
    is_large = __builtin_add_overflow(a, b, &result);
  } else if (sign == "-") {
    is_large = __builtin_sub_overflow(a, b, &result);
  } else if (sign == "*") {
    is_large = __builtin_mul_overflow(a, b, &result);
  } else {
    result = remainder(a, b);
  }
  if (is_large) fail_large();
  return JinjaValue(result);
}

JinjaValue float_arithmetic(std::string_view sign, double a, double b) {
  if (sign == "+") return JinjaValue(a + b);
  if (sign == "-") return JinjaValue(a - b);
  if (sign == "*") return JinjaValue(a * b);
  throw JinjaFault("% of a float is not supported");
}

JinjaValue repeated(const JinjaValue& value, int64_t times, JinjaMeter& meter) {
  times = std::max<int64_t>(times, 0);
  if (value.is_text()) {
    const auto size = std::ssize(value.text());
    if (size > 0 && times > INT64_MAX / size) meter.spend(INT64_MAX);
    meter.spend_bytes(size * times);
    std::string text;
    text.reserve(static_cast<size_t>(size * times));
    for (int64_t i = 0; i < times && size > 0; ++i) text += value.text();
    return JinjaValue(std::move(text), value.is_markup());
  }
  const auto size = std::ssize(value.items());
  if (size > 0 && times > INT64_MAX / size) meter.spend(INT64_MAX);
  meter.spend_items(size * times);
  JinjaValue::List items;
  for (int64_t i = 0; i < times && size > 0; ++i)
    items.insert(items.end(), value.items().begin(), value.items().end());
  return JinjaValue::list(std::move(items), value.row());
}

JinjaValue joined(const JinjaValue& a, const JinjaValue& b, JinjaMeter& meter) {
  if (a.is_text()) {
    meter.spend_bytes(std::ssize(a.text()) + std::ssize(b.text()));
    if (a.is_markup() == b.is_markup()) return JinjaValue(a.text() + b.text(), a.is_markup());
    meter.spend_characters(std::ssize((a.is_markup() ? b : a).text()));
    return a.is_markup() ? JinjaValue(a.text() + python::escape_html(b.text()), true)
                         : JinjaValue(python::escape_html(a.text()) + b.text(), true);
  }
  meter.spend_items(std::ssize(a.items()) + std::ssize(b.items()));
  JinjaValue::List items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return JinjaValue::list(std::move(items), a.row());
}

// Whether a list of words like " get items " has the word.
bool is_one_of(std::string_view words, std::string_view word) {
  if (word.empty() || word.find(' ') != std::string_view::npos) return false;
  size_t at = words.find(word);
  while (at != std::string_view::npos && (words[at - 1] != ' ' || words[at + word.size()] != ' '))
    at = words.find(word, at + 1);
  return at != std::string_view::npos;
}

// Python's own attributes of a value take precedence over a dictionary's keys.
bool has_method(const JinjaValue& value, const std::string& name) {
  if (value.is_dictionary()) return is_one_of(" copy fromkeys get items keys values ", name);
  if (value.has_places()) return is_one_of(" count index ", name);
  return value.is_text() &&
         is_one_of(
             " capitalize casefold center count encode endswith expandtabs find format format_map "
             "index isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric "
             "isprintable isspace istitle isupper join ljust lower lstrip maketrans partition "
             "removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split "
             "splitlines startswith strip swapcase title translate upper zfill ",
             name);
}

// Methods that change a value, which the sandbox of transformers hides.
bool is_hidden(const JinjaValue& value, const std::string& name) {
  return (value.is_dictionary() && is_one_of(" clear pop popitem setdefault update ", name)) ||
         (value.is_row(JinjaValue::Row::kList) &&
          is_one_of(" append clear copy extend insert pop remove reverse sort ", name));
}

JinjaValue method_of(const JinjaValue& value, const std::string& name) {
  if (has_method(value, name))
    return JinjaValue(JinjaValue::Callable{.macro = nullptr, .name = "method"});
  return JinjaValue::undefined(name);
}

JinjaValue arithmetic(std::string_view sign, const JinjaValue& a, const JinjaValue& b,
                      JinjaMeter& meter) {
  meter.spend(1);
  const auto x = a.try_integer(), y = b.try_integer();
  if (x && y) return whole_arithmetic(sign, *x, *y);
  if (a.is_number() && b.is_number()) return float_arithmetic(sign, a.number(), b.number());
  const bool is_row = a.is_text() || a.has_places();
  if (sign == "+" && a.is_text() && b.is_text()) return joined(a, b, meter);
  if (sign == "+" && a.has_places() && b.has_places() && a.row() == b.row())
    return joined(a, b, meter);
  if (sign == "*" && is_row && y) return repeated(a, *y, meter);
  if (sign == "*" && x && (b.is_text() || b.has_places())) return repeated(b, *x, meter);
  if (sign == "%" && a.is_text())
    throw JinjaFault("% after a string is not supported; write ~ between the parts");
  fail_sign(sign, a, b);
}

std::string concatenated(const JinjaValue& a, const JinjaValue& b, JinjaMeter& meter) {
  std::string text = to_text(a, meter) + to_text(b, meter);
  meter.spend_bytes(std::ssize(text));
  return text;
}

std::optional<int64_t> slice_bound(const JinjaValue& value) {
  if (value.is_none()) return std::nullopt;
  check_defined(value);
  const auto bound = value.try_integer();
  if (!bound) throw JinjaFault("a slice from or to a value of kind " + value.kind());
  return bound;
}

}  // namespace

void check_defined(const JinjaValue& value) {
  if (!value.is_undefined()) return;
  throw JinjaFault(value.undefined_name().empty() ? "an undefined value is used"
                                                  : value.undefined_name() + " is undefined");
}

JinjaValue operate(std::string_view sign, const JinjaValue& a, const JinjaValue& b,
                   JinjaMeter& meter) {
  if (sign == "==") return JinjaValue(equal(a, b, meter));
  if (sign == "!=") return JinjaValue(!equal(a, b, meter));
  if (sign == "in") return JinjaValue(contains(b, a, meter));
  if (sign == "not in") return JinjaValue(!contains(b, a, meter));
  if (sign == "~") return JinjaValue(concatenated(a, b, meter));
  if (sign != "<" && sign != "<=" && sign != ">" && sign != ">=")
    return arithmetic(sign, a, b, meter);
  check_defined(a);
  check_defined(b);
  const int order = compare(a, b, meter);
  return JinjaValue((order < 0 && sign[0] == '<') || (order > 0 && sign[0] == '>') ||
                    (order == 0 && sign.size() == 2));
}

JinjaValue attribute_of(const JinjaValue& value, const std::string& name, JinjaMeter& meter) {
  check_defined(value);
  if (JinjaNamespace* fields = value.try_namespace()) {
    meter.spend_names(std::ssize(fields->fields));
    for (const auto& [field, held] : fields->fields)
      if (field == name) return held;
    return JinjaValue::undefined(name);
  }
  if (is_hidden(value, name)) return JinjaValue::undefined(name);
  if (value.is_dictionary() && !has_method(value, name))
    if (const JinjaValue* found = value.try_find(name, meter)) return *found;
  return method_of(value, name);
}

JinjaValue item_of(const JinjaValue& value, const JinjaValue& key, JinjaMeter& meter) {
  check_defined(value);
  meter.spend(1);
  if (value.is_dictionary()) {
    if (const JinjaValue* found = value.try_find(key, meter)) return *found;
  } else if (const auto index = key.try_integer()) {
    if (value.has_places()) {
      const auto size = std::ssize(value.items());
      const int64_t at = *index < 0 ? *index + size : *index;
      if (at >= 0 && at < size) return value.items()[static_cast<size_t>(at)];
    } else if (value.is_text()) {
      meter.spend_characters(std::ssize(value.text()));
      const int64_t size = python::length(value.text());
      const int64_t at = *index < 0 ? *index + size : *index;
      if (at >= 0 && at < size)
        return JinjaValue(python::slice(value.text(), {.first = at, .last = at + 1}),
                          value.is_markup());
    }
  }
  if (!key.is_text()) return JinjaValue::undefined("the item");
  meter.spend_search(std::ssize(key.text()));
  if (is_hidden(value, key.text())) return JinjaValue::undefined(key.text());
  return method_of(value, key.text());
}

JinjaValue slice_of(const JinjaValue& value, const JinjaSlice& slice, JinjaMeter& meter) {
  check_defined(value);
  const int64_t step = slice_bound(slice.step).value_or(1);
  if (step == 0) throw JinjaFault("a slice with a step of 0");
  if (!value.is_text() && !value.has_places()) return JinjaValue::undefined("the slice");
  const auto begin = slice_bound(slice.begin), end = slice_bound(slice.end);
  if (value.is_text()) {
    meter.spend_characters(2 * std::ssize(value.text()));
    const auto places = python::slice_places(python::length(value.text()), begin, end, step);
    return JinjaValue(python::slice(value.text(), places), value.is_markup());
  }
  meter.spend_items(std::ssize(value.items()));
  const auto places = python::slice_places(std::ssize(value.items()), begin, end, step);
  JinjaValue::List items;
  for (int64_t at = places.first; places.has(at); at += places.stride)
    items.push_back(value.items()[static_cast<size_t>(at)]);
  return JinjaValue::list(std::move(items), value.row());
}

bool contains(const JinjaValue& whole, const JinjaValue& part, JinjaMeter& meter) {
  meter.spend(1);
  if (whole.is_undefined()) return false;
  if (whole.is_text()) {
    check_defined(part);
    if (!part.is_text()) throw JinjaFault(part.kind() + " in str is not possible");
    meter.spend_search(std::ssize(whole.text()));
    return python::position_of(whole.text(), part.text()) != std::string::npos;
  }
  if (whole.is_dictionary()) return whole.try_find(part, meter) != nullptr;
  if (!whole.is_sequence()) throw JinjaFault("in " + whole.kind() + " is not possible");
  return std::ranges::any_of(whole.items(),
                             [&](const JinjaValue& item) { return equal(item, part, meter); });
}

}  // namespace tlt::chat_template

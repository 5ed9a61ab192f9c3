// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "chat_template/jinja_builtins.h"
#include "chat_template/jinja_operations.h"
#include "chat_template/jinja_text.h"

namespace tlt::chat_template {
namespace {

using List = JinjaValue::List;
using python::Side;

struct MethodCall {
  const JinjaValue& object;
  const JinjaArguments& arguments;
  JinjaHost& host;

  const std::string& text() const { return object.text(); }
  JinjaParameters parameters(std::string_view what,
                             std::initializer_list<std::string_view> names = {}) const {
    return {what, arguments, names};
  }
  // A new string of the object's kind.
  JinjaValue like(std::string text) const {
    return JinjaValue(std::move(text), object.is_markup());
  }
};

struct Method {
  std::string_view name;
  JinjaValue (*call)(const MethodCall&);
};

JinjaValue texts(const std::vector<std::string_view>& parts, const MethodCall& call) {
  call.host.meter.spend_items(std::ssize(parts));
  List items;
  for (const std::string_view part : parts) items.push_back(call.like(std::string(part)));
  return JinjaValue::list(std::move(items));
}

JinjaValue strip(const MethodCall& call, std::string_view name, Side side) {
  const auto given = call.parameters(name, {"chars"});
  const bool is_plain = given[0] == nullptr || given[0]->is_none();
  return call.like(std::string(is_plain ? python::strip(call.text(), side)
                                        : python::strip(call.text(), given.text(0), side)));
}

JinjaValue split(const MethodCall& call, std::string_view name, bool from_right) {
  const auto given = call.parameters(name, {"sep", "maxsplit"});
  const int64_t limit = given.integer_or(1, -1);
  if (given[0] == nullptr || given[0]->is_none())
    return texts(from_right ? python::split_from_right(call.text(), limit)
                            : python::split(call.text(), limit),
                 call);
  if (given.text(0).empty()) throw JinjaFault("split at an empty string");
  return texts(python::split(call.text(), given.text(0), limit, from_right), call);
}

// Whether the string starts or ends with the argument, or one of a tuple.
JinjaValue has_end(const MethodCall& call, std::string_view name, bool at_begin) {
  const auto given = call.parameters(name, {"affix"});
  const JinjaValue& affix = given.require(0);
  const auto matches = [&](const JinjaValue& one) {
    check_defined(one);
    if (!one.is_text()) throw JinjaFault(fmt::format("{} of a value of kind {}", name, one.kind()));
    return at_begin ? call.text().starts_with(one.text()) : call.text().ends_with(one.text());
  };
  if (affix.is_tuple()) return JinjaValue(std::ranges::any_of(affix.items(), matches));
  return JinjaValue(matches(affix));
}

JinjaValue find(const MethodCall& call, std::string_view name, bool from_right) {
  const auto given = call.parameters(name, {"sub"});
  const size_t at = from_right ? call.text().rfind(given.text(0)) : call.text().find(given.text(0));
  return JinjaValue(at == std::string::npos
                        ? int64_t{-1}
                        : python::length(std::string_view(call.text()).substr(0, at)));
}

// {}, {0} and {name}, without format specifications.
JinjaValue format(const MethodCall& call) {
  std::string out;
  size_t next = 0;
  const std::string& text = call.text();
  for (size_t at = 0; at < text.size(); ++at) {
    const char byte = text[at];
    if (byte != '{' && byte != '}') {
      out += byte;
    } else if (at + 1 < text.size() && text[at + 1] == byte) {
      out += byte;
      ++at;
    } else {
      const size_t close = text.find('}', at);
      if (byte == '}' || close == std::string::npos) throw JinjaFault("format: a single brace");
      const std::string field = text.substr(at + 1, close - at - 1);
      const auto index =
          field.empty() ? static_cast<int64_t>(next++) : python::try_integer(field).value_or(-1);
      const JinjaValue* value = nullptr;
      if (index >= 0 && index < std::ssize(call.arguments.positional))
        value = &call.arguments.positional[static_cast<size_t>(index)];
      for (const auto& [name, named] : call.arguments.named)
        if (name == field) value = &named;
      if (value == nullptr) throw JinjaFault("format: {" + field + "} is not supported");
      out += to_text(*value, call.host.meter);
      at = close;
    }
  }
  call.host.meter.spend_bytes(std::ssize(out));
  return call.like(std::move(out));
}

JinjaValue replace(const MethodCall& call) {
  const auto given = call.parameters("replace", {"old", "new", "count"});
  call.host.meter.spend_bytes(python::count(call.text(), given.text(0)) *
                              std::ssize(given.text(1)));
  return call.like(
      python::replace(call.text(), given.text(0), given.text(1), given.integer_or(2, -1)));
}

JinjaValue join(const MethodCall& call) {
  const auto given = call.parameters("join", {"iterable"});
  std::string out;
  bool is_first = true;
  for (const JinjaValue& item : to_items(given.require(0), call.host.meter)) {
    if (!item.is_text()) throw JinjaFault("join of a value of kind " + item.kind());
    call.host.meter.spend_bytes(std::ssize(item.text()) + std::ssize(call.text()));
    if (!std::exchange(is_first, false)) out += call.text();
    out += item.text();
  }
  return call.like(std::move(out));
}

template <std::string (*Map)(std::string_view)>
JinjaValue map_text(const MethodCall& call) {
  call.parameters("a method of case");
  return call.like(Map(call.text()));
}

template <python::Class Wanted>
JinjaValue is_all(const MethodCall& call) {
  call.parameters("a method of a string");
  return JinjaValue(python::is_all(call.text(), Wanted));
}

JinjaValue count_text(const MethodCall& call) {
  return JinjaValue(python::count(call.text(), call.parameters("count", {"sub"}).text(0)));
}

JinjaValue index_text(const MethodCall& call) {
  JinjaValue at = find(call, "index", false);
  if (at.try_integer() == -1) throw JinjaFault("index: the string is not found");
  return at;
}

JinjaValue split_lines(const MethodCall& call) {
  const auto given = call.parameters("splitlines", {"keepends"});
  return texts(python::split_lines(call.text(), given.is_true(0)), call);
}

JinjaValue without_prefix(const MethodCall& call) {
  const auto given = call.parameters("removeprefix", {"prefix"});
  const bool has = call.text().starts_with(given.text(0));
  return call.like(call.text().substr(has ? given.text(0).size() : 0));
}

JinjaValue without_suffix(const MethodCall& call) {
  const auto given = call.parameters("removesuffix", {"suffix"});
  const bool has = call.text().ends_with(given.text(0));
  return call.like(call.text().substr(0, call.text().size() - (has ? given.text(0).size() : 0)));
}

constexpr auto kTextMethods = std::to_array<Method>({
    {"capitalize", map_text<python::capitalize>},
    {"count", count_text},
    {"endswith", [](const MethodCall& call) { return has_end(call, "endswith", false); }},
    {"find", [](const MethodCall& call) { return find(call, "find", false); }},
    {"format", format},
    {"index", index_text},
    {"isalnum", is_all<python::Class::kAlphanumeric>},
    {"isalpha", is_all<python::Class::kAlphabetic>},
    {"isdigit", is_all<python::Class::kDigit>},
    {"islower", [](const MethodCall& call) { return JinjaValue(python::is_lower(call.text())); }},
    {"isspace", is_all<python::Class::kSpace>},
    {"isupper", [](const MethodCall& call) { return JinjaValue(python::is_upper(call.text())); }},
    {"join", join},
    {"lower", map_text<python::lower>},
    {"lstrip", [](const MethodCall& call) { return strip(call, "lstrip", Side::kLeft); }},
    {"removeprefix", without_prefix},
    {"removesuffix", without_suffix},
    {"replace", replace},
    {"rfind", [](const MethodCall& call) { return find(call, "rfind", true); }},
    {"rsplit", [](const MethodCall& call) { return split(call, "rsplit", true); }},
    {"rstrip", [](const MethodCall& call) { return strip(call, "rstrip", Side::kRight); }},
    {"split", [](const MethodCall& call) { return split(call, "split", false); }},
    {"splitlines", split_lines},
    {"startswith", [](const MethodCall& call) { return has_end(call, "startswith", true); }},
    {"strip", [](const MethodCall& call) { return strip(call, "strip", Side::kBoth); }},
    {"title", map_text<python::title>},
    {"upper", map_text<python::upper>},
});

JinjaValue keys(const MethodCall& call) {
  call.parameters("keys");
  return JinjaValue::list(to_items(call.object, call.host.meter), JinjaValue::Row::kView);
}

JinjaValue values(const MethodCall& call) {
  call.parameters("values");
  call.host.meter.spend_items(std::ssize(call.object.pairs()));
  List all;
  for (const auto& [key, value] : call.object.pairs()) all.push_back(value);
  return JinjaValue::list(std::move(all), JinjaValue::Row::kView);
}

JinjaValue items(const MethodCall& call) {
  call.parameters("items");
  return JinjaValue::list(apply_jinja_filter("items", call.object, {}, call.host).items(),
                          JinjaValue::Row::kView);
}

JinjaValue get(const MethodCall& call) {
  const auto given = call.parameters("get", {"key", "default"});
  call.host.meter.spend(std::ssize(call.object.pairs()) / 8);
  if (const JinjaValue* found = call.object.try_find(given.require(0))) return *found;
  return given[1] == nullptr ? JinjaValue::none() : *given[1];
}

constexpr auto kDictionaryMethods =
    std::to_array<Method>({{"copy", [](const MethodCall& call) { return call.object; }},
                           {"get", get},
                           {"items", items},
                           {"keys", keys},
                           {"values", values}});

JinjaValue count_items(const MethodCall& call) {
  const auto given = call.parameters("count", {"value"});
  return JinjaValue(
      static_cast<int64_t>(std::ranges::count_if(call.object.items(), [&](const JinjaValue& item) {
        return equal(item, given.require(0), call.host.meter);
      })));
}

JinjaValue index_of(const MethodCall& call) {
  const auto given = call.parameters("index", {"value"});
  for (size_t i = 0; i < call.object.items().size(); ++i)
    if (equal(call.object.items()[i], given.require(0), call.host.meter))
      return JinjaValue(static_cast<int64_t>(i));
  throw JinjaFault("index: the value is not in the list");
}

constexpr auto kListMethods = std::to_array<Method>({{"count", count_items}, {"index", index_of}});

const Method* try_find_method(std::span<const Method> methods, std::string_view name) {
  const auto found = std::ranges::find(methods, name, &Method::name);
  return found == methods.end() ? nullptr : &*found;
}

}  // namespace

bool is_jinja_method(std::string_view name) {
  // Methods that change a list or a dictionary: calling them is an error.
  static constexpr auto kForbidden =
      std::to_array<std::string_view>({"append", "clear", "extend", "insert", "pop", "popitem",
                                       "remove", "reverse", "setdefault", "sort", "update"});
  if (std::ranges::find(kForbidden, name) != kForbidden.end()) return true;
  return try_find_method(kTextMethods, name) || try_find_method(kDictionaryMethods, name) ||
         try_find_method(kListMethods, name);
}

JinjaValue call_jinja_method(const JinjaValue& object, std::string_view name,
                             const JinjaArguments& arguments, JinjaHost& host) {
  check_defined(object);
  const Method* method = nullptr;
  if (object.is_text()) {
    host.meter.spend_bytes(std::ssize(object.text()));
    method = try_find_method(kTextMethods, name);
  } else if (object.is_dictionary()) {
    method = try_find_method(kDictionaryMethods, name);
  } else if (object.has_places()) {
    method = try_find_method(kListMethods, name);
  }
  if (method == nullptr)
    throw JinjaFault(fmt::format("a value of kind {} has no method {}", object.kind(), name));
  return method->call({object, arguments, host});
}

}  // namespace tlt::chat_template

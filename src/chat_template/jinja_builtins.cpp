// SPDX-License-Identifier: Apache-2.0
#include "chat_template/jinja_builtins.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "chat_template/jinja_operations.h"
#include "chat_template/jinja_text.h"

namespace tlt::chat_template {

const JinjaValue& JinjaCall::require(size_t i) const {
  if (!arguments_[i]) throw JinjaFault(fmt::format("{} needs {} arguments", name_, i + 1));
  return *arguments_[i];
}

const std::string& JinjaCall::text(size_t i) const {
  const JinjaValue& value = require(i);
  check_defined(value);
  if (!value.is_text())
    throw JinjaFault(fmt::format("{} takes a string, not a value of kind {}", name_, value.kind()));
  return value.text();
}

int64_t JinjaCall::integer_or(size_t i, int64_t standard) const {
  if (!arguments_[i]) return standard;
  check_defined(*arguments_[i]);
  const auto integer = arguments_[i]->try_integer();
  if (!integer)
    throw JinjaFault(
        fmt::format("{} takes an integer, not a value of kind {}", name_, arguments_[i]->kind()));
  return *integer;
}

namespace {

using Call = JinjaCall;
using List = JinjaValue::List;
using Row = JinjaValue::Row;
using Keyed = std::vector<std::pair<JinjaValue, JinjaValue>>;

JinjaValue standard(const Call& call) {
  const bool is_missing = call.input.is_undefined() || (call.is_true(1) && !call.input.is_true());
  if (!is_missing) return call.input;
  return call[0] == nullptr ? JinjaValue("") : *call[0];
}

JinjaValue first_or_last(const Call& call, bool is_first) {
  const List items = to_items(call.input, call.meter);
  if (items.empty()) return JinjaValue::undefined("an item of an empty list");
  return is_first ? items.front() : items.back();
}

JinjaValue length(const Call& call) {
  const JinjaValue& input = call.input;
  if (input.is_undefined()) return JinjaValue(int64_t{0});
  if (input.is_text()) {
    call.meter.spend_bytes(std::ssize(input.text()));
    return JinjaValue(python::length(input.text()));
  }
  if (input.is_sequence() && !input.is_row(Row::kGenerator))
    return JinjaValue(static_cast<int64_t>(input.items().size()));
  if (input.is_dictionary()) return JinjaValue(static_cast<int64_t>(input.pairs().size()));
  throw JinjaFault("length of a value of kind " + input.kind());
}

List pairs_of(const Call& call) {
  List pairs;
  if (call.input.is_undefined()) return pairs;
  if (!call.input.is_dictionary())
    throw JinjaFault("items of a value of kind " + call.input.kind());
  call.meter.spend_items(2 * std::ssize(call.input.pairs()));
  for (const auto& [key, value] : call.input.pairs())
    pairs.push_back(JinjaValue::list({key, value}, Row::kTuple));
  return pairs;
}

// An indentation: a string, or a number of spaces.
std::string indentation(const Call& call, size_t i, int64_t standard) {
  constexpr int64_t kMostSpaces = 1000;
  if (call[i] != nullptr && call[i]->is_text()) return to_text(*call[i], call.meter);
  return std::string(
      static_cast<size_t>(std::clamp<int64_t>(call.integer_or(i, standard), 0, kMostSpaces)), ' ');
}

// As transformers' tojson: json.dumps without HTML escaping.
JinjaValue tojson(const Call& call) {
  JinjaJsonStyle style{.indent = {}, .sorts_keys = call.is_true(3), .is_ascii = call.is_true(0)};
  if (call.is_given(1)) {
    style.indent = indentation(call, 1, 0);
    style.item_separator = ",";
  }
  if (call.is_given(2)) {
    const JinjaValue& both = *call[2];
    if (!both.is_sequence() || both.items().size() != 2 || !both.items()[0].is_text() ||
        !both.items()[1].is_text())
      throw JinjaFault("tojson: separators are two strings");
    style.item_separator = to_text(both.items()[0], call.meter);
    style.key_separator = to_text(both.items()[1], call.meter);
  }
  return JinjaValue(to_json(call.input, style, call.meter));
}

JinjaValue join(const Call& call) {
  const std::string between = call[0] == nullptr ? "" : to_text(*call[0], call.meter);
  std::string out;
  bool is_first = true;
  for (const JinjaValue& item : to_items(call.input, call.meter)) {
    call.meter.spend_bytes(std::ssize(between));
    if (!std::exchange(is_first, false)) out += between;
    out += to_text(item, call.meter);
  }
  return JinjaValue(std::move(out));
}

// Of the method and the filter: both search the text twice.
std::string replaced(const std::string& text, const std::string& from, const std::string& to,
                     int64_t limit, JinjaMeter& meter) {
  meter.spend_characters(std::ssize(text));
  meter.spend_bytes(python::count(text, from) * std::ssize(to));
  return python::replace(text, from, to, limit);
}

JinjaValue replace(const Call& call) {
  const std::string text = call.text(), from = to_text(call.require(0), call.meter),
                    to = to_text(call.require(1), call.meter);
  const int64_t limit = call.is_given(2) ? call.integer_or(2, -1) : -1;
  return JinjaValue(replaced(text, from, to, limit, call.meter));
}

JinjaValue indent(const Call& call) {
  const std::string space = indentation(call, 0, 4);
  const std::string text = call.text() + "\n";
  std::string out = call.is_true(1) ? space : "";
  bool is_first = true;
  call.meter.spend_characters(std::ssize(text));
  python::split_lines(text, [&](std::string_view line) {
    call.meter.spend_bytes(std::ssize(space) + std::ssize(line));
    if (!std::exchange(is_first, false)) out += line.empty() ? "\n" : "\n" + space;
    out += line;
  });
  return call.like(std::move(out));
}

JinjaValue to_integer(const Call& call) {
  const JinjaValue fallback = call[0] == nullptr ? JinjaValue(int64_t{0}) : *call[0];
  if (const auto integer = call.input.try_integer()) return JinjaValue(*integer);
  std::optional<double> number;
  if (call.input.is_text()) {
    call.meter.spend_characters(std::ssize(call.input.text()));
    if (const auto read = python::try_integer(call.input.text())) return JinjaValue(*read);
    number = python::try_float(call.input.text());
  } else if (call.input.is_float()) {
    number = call.input.number();
  }
  if (!number || !(std::fabs(*number) < 9e18)) return fallback;
  return JinjaValue(static_cast<int64_t>(*number));
}

JinjaValue without_case(const JinjaValue& value, JinjaMeter& meter) {
  if (!value.is_text()) return value;
  meter.spend_characters(std::ssize(value.text()));
  return JinjaValue(python::lower(value.text()));
}

JinjaValue dictsort(const Call& call) {
  Keyed keyed;
  for (const JinjaValue& pair : pairs_of(call)) keyed.emplace_back(pair.items()[0], pair);
  return sorted_by(std::move(keyed), /*is_reversed=*/false, call.meter);
}

JinjaValue unique(const Call& call) {
  List seen, out;
  for (JinjaValue& item : to_items(call.input, call.meter)) {
    const JinjaValue key = without_case(item, call.meter);
    const bool is_new = std::ranges::none_of(
        seen, [&](const JinjaValue& other) { return equal(key, other, call.meter); });
    if (!is_new) continue;
    seen.push_back(key);
    out.push_back(std::move(item));
  }
  return JinjaValue::list(std::move(out), Row::kGenerator);
}

template <python::Side Where>
JinjaValue strip(const Call& call) {
  const std::string text = call.text();
  if (call.is_given(0)) call.meter.spend_characters(std::ssize(call.text(0)));
  const std::string_view kept =
      call.is_given(0) ? python::strip(text, call.text(0), Where) : python::strip(text, Where);
  call.meter.spend_characters(std::ssize(text) - std::ssize(kept));
  return call.like(std::string(kept));
}

template <std::string (*Map)(std::string_view)>
JinjaValue map_text(const Call& call) {
  const std::string text = call.text();
  call.meter.spend_characters(std::ssize(text));
  return call.like(Map(text));
}

constexpr auto kFilters = std::to_array<JinjaBuiltin>({
    {"capitalize", "", map_text<python::capitalize>},
    {"count", "", length},
    {"d", "default_value boolean", standard},
    {"default", "default_value boolean", standard},
    {"dictsort", "", dictsort},
    {"first", "", [](const Call& call) { return first_or_last(call, true); }},
    {"indent", "width first", indent},
    {"int", "default", to_integer},
    {"items", "",
     [](const Call& call) { return JinjaValue::list(pairs_of(call), Row::kGenerator); }},
    {"join", "d", join},
    {"last", "", [](const Call& call) { return first_or_last(call, false); }},
    {"length", "", length},
    {"list", "",
     [](const Call& call) { return JinjaValue::list(to_items(call.input, call.meter)); }},
    {"lower", "", map_text<python::lower>},
    {"replace", "old new count", replace},
    {"safe", "", [](const Call& call) { return JinjaValue(call.text(), true); }},
    {"string", "", [](const Call& call) { return call.like(call.text()); }},
    {"tojson", "ensure_ascii indent separators sort_keys", tojson},
    {"trim", "chars", strip<python::Side::kBoth>},
    {"unique", "", unique},
    {"upper", "", map_text<python::upper>},
});

template <bool (*Holds)(const JinjaValue&)>
JinjaValue holds(const Call& call) {
  return JinjaValue(Holds(call.input));
}

JinjaValue is_equal(const Call& call) {
  return JinjaValue(equal(call.input, call.require(0), call.meter));
}
JinjaValue is_unequal(const Call& call) { return JinjaValue(!is_equal(call).is_true()); }
JinjaValue is_in(const Call& call) {
  return JinjaValue(contains(call.require(0), call.input, call.meter));
}

using Value = const JinjaValue&;
bool is_iterable(Value value) {
  return value.is_sequence() || value.is_text() || value.is_dictionary() || value.is_undefined();
}
bool is_sequence(Value value) {
  return value.is_sequence() ? value.has_places() : is_iterable(value);
}

constexpr auto kTests = std::to_array<JinjaBuiltin>({
    {"!=", "other", is_unequal},
    {"==", "other", is_equal},
    {"boolean", "", holds<[](Value value) { return value.is_bool(); }>},
    {"defined", "", holds<[](Value value) { return !value.is_undefined(); }>},
    {"eq", "other", is_equal},
    {"equalto", "other", is_equal},
    {"false", "", holds<[](Value value) { return value.is_bool() && !value.is_true(); }>},
    {"float", "", holds<[](Value value) { return value.is_float(); }>},
    {"in", "seq", is_in},
    {"integer", "", holds<[](Value value) { return value.try_integer() && !value.is_bool(); }>},
    {"iterable", "", holds<is_iterable>},
    {"mapping", "", holds<[](Value value) { return value.is_dictionary(); }>},
    {"ne", "other", is_unequal},
    {"none", "", holds<[](Value value) { return value.is_none(); }>},
    {"number", "", holds<[](Value value) { return value.is_number(); }>},
    {"sequence", "", holds<is_sequence>},
    {"string", "", holds<[](Value value) { return value.is_text(); }>},
    {"true", "", holds<[](Value value) { return value.is_bool() && value.is_true(); }>},
    {"undefined", "", holds<[](Value value) { return value.is_undefined(); }>},
});

// --- methods

// Calls a method of strings; that of another value is an error.
template <JinjaValue (*Method)(const Call&)>
JinjaValue of_text(const Call& call) {
  if (!call.input.is_text()) call.fail_method();
  call.meter.spend_bytes(std::ssize(call.input.text()));
  return Method(call);
}

template <JinjaValue (*Method)(const Call&)>
JinjaValue of_dictionary(const Call& call) {
  if (!call.input.is_dictionary()) call.fail_method();
  return Method(call);
}

[[noreturn]] JinjaValue no_method(const Call& call) { call.fail_method(); }

// A list of the parts for which `split` calls its argument.
template <class Split>
JinjaValue parts_of(const Call& call, const Split& split) {
  List items;
  split([&](std::string_view part) {
    call.meter.spend_items(1);
    items.push_back(call.like(std::string(part)));
  });
  return JinjaValue::list(std::move(items));
}

JinjaValue split(const Call& call) {
  const int64_t limit = call.integer_or(1, -1);
  const std::string& text = call.input.text();
  if (!call.is_given(0)) {
    call.meter.spend_characters(std::ssize(text));
    return parts_of(call, [&](const auto& visit) { python::split(text, limit, visit); });
  }
  const std::string& separator = call.text(0);
  if (separator.empty()) throw JinjaFault("split at an empty string");
  call.meter.spend_search(std::ssize(text));
  return parts_of(call, [&](const auto& visit) { python::split(text, separator, limit, visit); });
}

// Whether the string starts or ends with the argument, or one of a tuple.
template <bool AtBegin>
JinjaValue has_end(const Call& call) {
  const std::string_view text = call.input.text();
  const auto matches = [&](const JinjaValue& one) {
    check_defined(one);
    if (!one.is_text())
      throw JinjaFault(
          (AtBegin ? "startswith of a value of kind " : "endswith of a value of kind ") +
          one.kind());
    call.meter.spend_bytes(4 + std::ssize(one.text()));
    return AtBegin ? text.starts_with(one.text()) : text.ends_with(one.text());
  };
  const JinjaValue& affix = call.require(0);
  return JinjaValue(affix.is_tuple() ? std::ranges::any_of(affix.items(), matches)
                                     : matches(affix));
}

JinjaValue replace_text(const Call& call) {
  const std::string &from = call.text(0), &to = call.text(1);
  return call.like(replaced(call.input.text(), from, to, call.integer_or(2, -1), call.meter));
}

JinjaValue join_texts(const Call& call) {
  const std::string& between = call.input.text();
  std::string out;
  bool is_first = true;
  for (const JinjaValue& item : to_items(call.require(0), call.meter)) {
    if (!item.is_text()) throw JinjaFault("join of a value of kind " + item.kind());
    call.meter.spend_bytes(std::ssize(item.text()) + std::ssize(between));
    if (!std::exchange(is_first, false)) out += between;
    out += item.text();
  }
  return call.like(std::move(out));
}

JinjaValue split_lines(const Call& call) {
  const std::string& text = call.input.text();
  call.meter.spend_characters(std::ssize(text));
  return parts_of(call, [&](const auto& visit) { python::split_lines(text, visit); });
}

JinjaValue get(const Call& call) {
  if (const JinjaValue* found = call.input.try_find(call.require(0), call.meter)) return *found;
  return call[1] == nullptr ? JinjaValue::none() : *call[1];
}

JinjaValue keys(const Call& call) {
  return JinjaValue::list(to_items(call.input, call.meter), Row::kView);
}

JinjaValue values(const Call& call) {
  call.meter.spend_items(std::ssize(call.input.pairs()));
  List all;
  for (const auto& [key, value] : call.input.pairs()) all.push_back(value);
  return JinjaValue::list(std::move(all), Row::kView);
}

JinjaValue items(const Call& call) { return JinjaValue::list(pairs_of(call), Row::kView); }

// The last ones would change a value, which the sandbox of transformers forbids: an error, but only
// when a template calls them.
constexpr auto kMethods = std::to_array<JinjaBuiltin>({
    {"capitalize", "", of_text<map_text<python::capitalize>>},
    {"endswith", "suffix", of_text<has_end<false>>},
    {"get", "key default", of_dictionary<get>},
    {"items", "", of_dictionary<items>},
    {"join", "iterable", of_text<join_texts>},
    {"keys", "", of_dictionary<keys>},
    {"lower", "", of_text<map_text<python::lower>>},
    {"lstrip", "chars", of_text<strip<python::Side::kLeft>>},
    {"replace", "old new count", of_text<replace_text>},
    {"rstrip", "chars", of_text<strip<python::Side::kRight>>},
    {"split", "sep maxsplit", of_text<split>},
    {"splitlines", "", of_text<split_lines>},
    {"startswith", "prefix", of_text<has_end<true>>},
    {"strip", "chars", of_text<strip<python::Side::kBoth>>},
    {"title", "", of_text<map_text<python::title>>},
    {"upper", "", of_text<map_text<python::upper>>},
    {"values", "", of_dictionary<values>},
    {"append", "object", no_method},
    {"clear", "", no_method},
    {"extend", "iterable", no_method},
    {"insert", "index object", no_method},
    {"pop", "index default", no_method},
    {"popitem", "", no_method},
    {"remove", "value", no_method},
    {"reverse", "", no_method},
    {"setdefault", "key default", no_method},
    {"sort", "", no_method},
    {"update", "other", no_method},
});

template <class Entry, size_t N>
const Entry* try_find(const std::array<Entry, N>& entries, std::string_view name) {
  const auto found = std::ranges::find(entries, name, &Entry::name);
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace

void JinjaCall::fail_method() const {
  check_defined(input);
  throw JinjaFault(fmt::format("a value of kind {} has no method {}", input.kind(), name_));
}

const JinjaBuiltin* try_jinja_filter(std::string_view name) { return try_find(kFilters, name); }
const JinjaBuiltin* try_jinja_test(std::string_view name) { return try_find(kTests, name); }
const JinjaBuiltin* try_jinja_method(std::string_view name) { return try_find(kMethods, name); }

JinjaValue sorted_by(Keyed keyed, bool is_reversed, JinjaMeter& meter) {
  for (auto& [key, item] : keyed) key = without_case(key, meter);
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    return is_reversed ? compare(b.first, a.first, meter) < 0
                       : compare(a.first, b.first, meter) < 0;
  });
  List out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return JinjaValue::list(std::move(out));
}

}  // namespace tlt::chat_template

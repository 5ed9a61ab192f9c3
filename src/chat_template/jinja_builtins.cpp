// SPDX-License-Identifier: Apache-2.0
#include "chat_template/jinja_builtins.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "chat_template/jinja_operations.h"
#include "chat_template/jinja_text.h"

namespace tlt::chat_template {

JinjaParameters::JinjaParameters(std::string_view what, const JinjaArguments& arguments,
                                 std::initializer_list<std::string_view> names)
    : what_(what), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size())
    throw JinjaFault(fmt::format("{} takes at most {} arguments", what, names.size()));
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto place = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (place == names.size() || values_[place] != nullptr)
      throw JinjaFault(fmt::format("{} takes no argument {}{}", what, name,
                                   place == names.size() ? "" : " twice"));
    values_[place] = &value;
  }
}

const JinjaValue& JinjaParameters::require(size_t i) const {
  if (values_[i] == nullptr) throw JinjaFault(fmt::format("{} needs {} arguments", what_, i + 1));
  return *values_[i];
}

const std::string& JinjaParameters::text(size_t i) const {
  const JinjaValue& value = require(i);
  check_defined(value);
  if (!value.is_text())
    throw JinjaFault(fmt::format("{} takes a string, not a value of kind {}", what_, value.kind()));
  return value.text();
}

std::string JinjaParameters::text_or(size_t i, std::string_view standard) const {
  return values_[i] == nullptr ? std::string(standard) : text(i);
}

int64_t JinjaParameters::integer_or(size_t i, int64_t standard) const {
  if (values_[i] == nullptr) return standard;
  check_defined(*values_[i]);
  const auto integer = values_[i]->try_integer();
  if (!integer)
    throw JinjaFault(
        fmt::format("{} takes an integer, not a value of kind {}", what_, values_[i]->kind()));
  return *integer;
}

bool JinjaParameters::is_true(size_t i, bool standard) const {
  return values_[i] == nullptr ? standard : values_[i]->is_true();
}

namespace {

using List = JinjaValue::List;
using Row = JinjaValue::Row;

struct Call {
  const JinjaValue& input;
  const JinjaArguments& arguments;
  JinjaHost& host;

  JinjaParameters parameters(std::string_view what,
                             std::initializer_list<std::string_view> names = {}) const {
    return {what, arguments, names};
  }
  JinjaMeter& meter() const { return host.meter; }
  // The input as printed text.
  std::string text() const { return to_text(input, host.meter); }
  JinjaValue like(std::string text) const { return JinjaValue(std::move(text), input.is_markup()); }
};

struct Filter {
  std::string_view name;
  JinjaValue (*call)(const Call&);
};

// The attribute "a.0.b" of an item.
JinjaValue reach(const JinjaValue& item, const JinjaValue& path, JinjaMeter& meter) {
  if (!path.is_text()) return item_of(item, path, meter);
  JinjaValue value = item;
  for (const std::string_view part : python::split(path.text(), ".", -1)) {
    const auto index =
        python::is_all(part, python::Class::kDigit) ? python::try_integer(part) : std::nullopt;
    value = item_of(value, index ? JinjaValue(*index) : JinjaValue(std::string(part)), meter);
  }
  return value;
}

JinjaValue reach_if(const JinjaValue& item, const JinjaValue* path, JinjaMeter& meter) {
  return path == nullptr || path->is_none() ? item : reach(item, *path, meter);
}

JinjaValue absolute(const Call& call) {
  call.parameters("abs");
  check_defined(call.input);
  if (!call.input.is_number()) throw JinjaFault("abs of a value of kind " + call.input.kind());
  if (call.input.is_float()) return JinjaValue(std::fabs(call.input.number()));
  return call.input.number() < 0
             ? arithmetic("-", JinjaValue(int64_t{0}), call.input, call.meter())
             : arithmetic("+", JinjaValue(int64_t{0}), call.input, call.meter());
}

JinjaValue standard(const Call& call) {
  const auto given = call.parameters("default", {"default_value", "boolean"});
  const bool is_missing = call.input.is_undefined() || (given.is_true(1) && !call.input.is_true());
  if (!is_missing) return call.input;
  return given[0] == nullptr ? JinjaValue("") : *given[0];
}

JinjaValue first_or_last(const Call& call, bool is_first) {
  call.parameters("first and last");
  const List items = to_items(call.input, call.meter());
  if (items.empty()) return JinjaValue::undefined("an item of an empty list");
  return is_first ? items.front() : items.back();
}

JinjaValue length(const Call& call) {
  call.parameters("length");
  const JinjaValue& input = call.input;
  if (input.is_undefined()) return JinjaValue(int64_t{0});
  if (input.is_text()) return JinjaValue(python::length(input.text()));
  if (input.is_sequence() && !input.is_row(Row::kGenerator))
    return JinjaValue(static_cast<int64_t>(input.items().size()));
  if (input.is_dictionary()) return JinjaValue(static_cast<int64_t>(input.pairs().size()));
  throw JinjaFault("length of a value of kind " + input.kind());
}

JinjaValue items(const Call& call) {
  call.parameters("items");
  List pairs;
  if (call.input.is_undefined()) return JinjaValue::list({}, Row::kGenerator);
  if (!call.input.is_dictionary())
    throw JinjaFault("items of a value of kind " + call.input.kind());
  call.meter().spend_items(2 * std::ssize(call.input.pairs()));
  for (const auto& [key, value] : call.input.pairs())
    pairs.push_back(JinjaValue::list({key, value}, Row::kTuple));
  return JinjaValue::list(std::move(pairs), Row::kGenerator);
}

// As transformers' tojson: json.dumps without HTML escaping.
JinjaValue tojson(const Call& call) {
  const auto given =
      call.parameters("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JinjaJsonStyle style;
  style.is_ascii = given.is_true(0);
  style.sorts_keys = given.is_true(3);
  if (given[1] != nullptr && !given[1]->is_none()) {
    constexpr int64_t kMostSpaces = 1000;
    style.indent = given[1]->is_text() ? given[1]->text()
                                       : std::string(static_cast<size_t>(std::clamp<int64_t>(
                                                         given.integer_or(1, 0), 0, kMostSpaces)),
                                                     ' ');
    style.item_separator = ",";
  }
  if (given[2] != nullptr && !given[2]->is_none()) {
    if (!given[2]->is_sequence() || given[2]->items().size() != 2 ||
        !given[2]->items()[0].is_text() || !given[2]->items()[1].is_text())
      throw JinjaFault("tojson: separators are two strings");
    style.item_separator = given[2]->items()[0].text();
    style.key_separator = given[2]->items()[1].text();
  }
  return JinjaValue(to_json(call.input, style, call.meter()));
}

JinjaValue join(const Call& call) {
  const auto given = call.parameters("join", {"d", "attribute"});
  const std::string between = given[0] == nullptr ? "" : to_text(*given[0], call.meter());
  std::string out;
  bool is_first = true;
  for (const JinjaValue& item : to_items(call.input, call.meter())) {
    call.meter().spend_bytes(std::ssize(between));
    if (!std::exchange(is_first, false)) out += between;
    out += to_text(reach_if(item, given[1], call.meter()), call.meter());
  }
  return JinjaValue(std::move(out));
}

JinjaValue replace(const Call& call) {
  const auto given = call.parameters("replace", {"old", "new", "count"});
  const std::string text = call.text(), from = to_text(given.require(0), call.meter()),
                    to = to_text(given.require(1), call.meter());
  const bool has_limit = given[2] != nullptr && !given[2]->is_none();
  call.meter().spend_bytes(python::count(text, from) * std::ssize(to));
  return JinjaValue(python::replace(text, from, to, has_limit ? given.integer_or(2, -1) : -1));
}

JinjaValue indent(const Call& call) {
  const auto given = call.parameters("indent", {"width", "first", "blank"});
  const bool is_text = given[0] != nullptr && given[0]->is_text();
  constexpr int64_t kMostSpaces = 1000;
  const std::string space = is_text ? given[0]->text()
                                    : std::string(static_cast<size_t>(std::clamp<int64_t>(
                                                      given.integer_or(0, 4), 0, kMostSpaces)),
                                                  ' ');
  const std::string text = call.text() + "\n";
  std::string out = given.is_true(1) ? space : "";
  bool is_first = true;
  for (const std::string_view line : python::split_lines(text)) {
    call.meter().spend_bytes(std::ssize(space) + std::ssize(line));
    if (!std::exchange(is_first, false)) {
      out += '\n';
      if (given.is_true(2) || !line.empty()) out += space;
    }
    out += line;
  }
  return call.like(std::move(out));
}

JinjaValue to_integer(const Call& call) {
  const auto given = call.parameters("int", {"default", "base"});
  const JinjaValue fallback = given[0] == nullptr ? JinjaValue(int64_t{0}) : *given[0];
  if (const auto integer = call.input.try_integer()) return JinjaValue(*integer);
  std::optional<double> number;
  if (call.input.is_text()) {
    if (const auto read = python::try_integer(call.input.text(), given.integer_or(1, 10)))
      return JinjaValue(*read);
    number = python::try_float(call.input.text());
  } else if (call.input.is_float()) {
    number = call.input.number();
  }
  if (!number || !(std::fabs(*number) < 9e18)) return fallback;
  return JinjaValue(static_cast<int64_t>(*number));
}

JinjaValue to_float(const Call& call) {
  const auto given = call.parameters("float", {"default"});
  if (call.input.is_number()) return JinjaValue(call.input.number());
  if (call.input.is_text())
    if (const auto read = python::try_float(call.input.text())) return JinjaValue(*read);
  return given[0] == nullptr ? JinjaValue(0.0) : *given[0];
}

JinjaValue round(const Call& call) {
  const auto given = call.parameters("round", {"precision", "method"});
  const int64_t precision = given.integer_or(0, 0);
  const std::string method = given.text_or(1, "common");
  check_defined(call.input);
  if (!call.input.is_number() || precision < 0 || precision > 15)
    throw JinjaFault("round of such a value is not supported");
  if (method == "common" && !call.input.is_float()) return call.input;
  if (method == "common")
    return JinjaValue(*python::try_float(fmt::format("{:.{}f}", call.input.number(), precision)));
  if (method != "ceil" && method != "floor")
    throw JinjaFault("round: the method is common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = call.input.number() * scale;
  return JinjaValue((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

// For map, select and reject: the arguments after the first `skipped`.
JinjaArguments rest_of(const JinjaArguments& arguments, size_t skipped) {
  JinjaArguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                            skipped, arguments.positional.size())),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

JinjaValue map(const Call& call) {
  List out;
  if (!call.input.is_true()) return JinjaValue::list({}, Row::kGenerator);
  const auto& positional = call.arguments.positional;
  if (positional.empty()) {
    const auto given = call.parameters("map", {"attribute", "default"});
    for (const JinjaValue& item : to_items(call.input, call.meter())) {
      JinjaValue value = reach(item, given.require(0), call.meter());
      out.push_back(value.is_undefined() && given[1] != nullptr ? *given[1] : std::move(value));
    }
  } else {
    if (!positional[0].is_text() || !is_jinja_filter(positional[0].text()))
      throw JinjaFault("map: no such filter");
    const JinjaArguments rest = rest_of(call.arguments, 1);
    for (const JinjaValue& item : to_items(call.input, call.meter()))
      out.push_back(apply_jinja_filter(positional[0].text(), item, rest, call.host));
  }
  return JinjaValue::list(std::move(out), Row::kGenerator);
}

JinjaValue select(const Call& call, bool is_wanted, bool by_attribute) {
  const auto& positional = call.arguments.positional;
  const size_t place = by_attribute ? 1 : 0;  // of the test's name
  if (positional.size() < place) throw JinjaFault("selectattr and rejectattr need an attribute");
  const bool has_test = positional.size() > place;
  if (has_test && (!positional[place].is_text() || !is_jinja_test(positional[place].text())))
    throw JinjaFault("select and reject: no such test");
  const JinjaArguments rest = rest_of(call.arguments, place + 1);
  List out;
  if (!call.input.is_true()) return JinjaValue::list({}, Row::kGenerator);
  for (const JinjaValue& item : to_items(call.input, call.meter())) {
    const JinjaValue value = by_attribute ? reach(item, positional[0], call.meter()) : item;
    const bool passes = has_test
                            ? apply_jinja_test(positional[place].text(), value, rest, call.host)
                            : value.is_true();
    if (passes == is_wanted) out.push_back(item);
  }
  return JinjaValue::list(std::move(out), Row::kGenerator);
}

JinjaValue without_case(const JinjaValue& value, bool is_case_sensitive) {
  return value.is_text() && !is_case_sensitive ? JinjaValue(python::lower(value.text())) : value;
}

// Items with their comparison keys.
using Keyed = std::vector<std::pair<JinjaValue, JinjaValue>>;

Keyed keyed_items(const Call& call, const JinjaValue* attribute, bool is_case_sensitive) {
  Keyed keyed;
  for (const JinjaValue& item : to_items(call.input, call.meter()))
    keyed.emplace_back(without_case(reach_if(item, attribute, call.meter()), is_case_sensitive),
                       item);
  return keyed;
}

JinjaValue sorted(Keyed keyed, bool is_reversed, JinjaMeter& meter) {
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    return is_reversed ? compare(b.first, a.first, meter) < 0
                       : compare(a.first, b.first, meter) < 0;
  });
  List out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return JinjaValue::list(std::move(out));
}

JinjaValue sort(const Call& call) {
  const auto given = call.parameters("sort", {"reverse", "case_sensitive", "attribute"});
  return sorted(keyed_items(call, given[2], given.is_true(1)), given.is_true(0), call.meter());
}

JinjaValue dictsort(const Call& call) {
  const auto given = call.parameters("dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = given.text_or(1, "key");
  if (by != "key" && by != "value") throw JinjaFault("dictsort: by is key or value");
  const JinjaValue pairs = items({call.input, {}, call.host});
  Keyed keyed;
  for (const JinjaValue& pair : pairs.items())
    keyed.emplace_back(without_case(pair.items()[by == "key" ? 0 : 1], given.is_true(0)), pair);
  return sorted(std::move(keyed), given.is_true(2), call.meter());
}

JinjaValue unique(const Call& call) {
  const auto given = call.parameters("unique", {"case_sensitive", "attribute"});
  List seen, out;
  for (auto& [key, item] : keyed_items(call, given[1], given.is_true(0))) {
    const bool is_new = std::ranges::none_of(
        seen, [&](const JinjaValue& other) { return equal(key, other, call.meter()); });
    if (!is_new) continue;
    seen.push_back(key);
    out.push_back(std::move(item));
  }
  return JinjaValue::list(std::move(out), Row::kGenerator);
}

JinjaValue extreme(const Call& call, int sign) {
  const auto given = call.parameters("min and max", {"case_sensitive", "attribute"});
  Keyed keyed = keyed_items(call, given[1], given.is_true(0));
  if (keyed.empty()) return JinjaValue::undefined("an item of an empty list");
  const auto* best = &keyed[0];
  for (const auto& entry : keyed)
    if (compare(entry.first, best->first, call.meter()) * sign > 0) best = &entry;
  return best->second;
}

JinjaValue sum(const Call& call) {
  const auto given = call.parameters("sum", {"attribute", "start"});
  JinjaValue total = given[1] == nullptr ? JinjaValue(int64_t{0}) : *given[1];
  for (const JinjaValue& item : to_items(call.input, call.meter()))
    total = arithmetic("+", total, reach_if(item, given[0], call.meter()), call.meter());
  return total;
}

JinjaValue reverse(const Call& call) {
  call.parameters("reverse");
  if (call.input.is_text())
    return slice_of(call.input, {.step = JinjaValue(int64_t{-1})}, call.meter());
  List all = to_items(call.input, call.meter());
  std::ranges::reverse(all);
  return JinjaValue::list(std::move(all), Row::kGenerator);
}

JinjaValue title(const Call& call) {
  call.parameters("title");
  std::string word, out;
  const auto flush = [&] { out += python::capitalize(std::exchange(word, {})); };
  const std::string text = call.text();
  for (const std::string_view letter : python::characters(text)) {
    const bool is_between = python::strip(letter).empty() ||
                            std::string_view("-({[<").find(letter) != std::string_view::npos;
    if (is_between) flush();
    (is_between ? out : word) += letter;
  }
  flush();
  return JinjaValue(std::move(out));
}

JinjaValue trim(const Call& call) {
  const auto given = call.parameters("trim", {"chars"});
  const std::string text = call.text();
  const bool is_plain = given[0] == nullptr || given[0]->is_none();
  return call.like(
      std::string(is_plain ? python::strip(text) : python::strip(text, given.text(0))));
}

JinjaValue format(const Call& call) {
  if (!call.arguments.named.empty() || call.input.is_markup())
    throw JinjaFault("format of such values is not supported");
  return JinjaValue(percent_format(call.text(), call.arguments.positional, call.meter()));
}

JinjaValue escape(const Call& call) {
  call.parameters("escape");
  return call.input.is_markup() ? call.input : JinjaValue(python::escape_html(call.text()), true);
}

template <std::string (*Map)(std::string_view)>
JinjaValue map_text(const Call& call) {
  call.parameters("a filter of case");
  return call.like(Map(call.text()));
}

constexpr auto kFilters = std::to_array<Filter>({
    {"abs", absolute},
    {"capitalize", map_text<python::capitalize>},
    {"count", length},
    {"d", standard},
    {"default", standard},
    {"dictsort", dictsort},
    {"e", escape},
    {"escape", escape},
    {"first", [](const Call& call) { return first_or_last(call, true); }},
    {"float", to_float},
    {"format", format},
    {"indent", indent},
    {"int", to_integer},
    {"items", items},
    {"join", join},
    {"last", [](const Call& call) { return first_or_last(call, false); }},
    {"length", length},
    {"list",
     [](const Call& call) {
       call.parameters("list");
       return JinjaValue::list(to_items(call.input, call.meter()));
     }},
    {"lower", map_text<python::lower>},
    {"map", map},
    {"max", [](const Call& call) { return extreme(call, 1); }},
    {"min", [](const Call& call) { return extreme(call, -1); }},
    {"reject", [](const Call& call) { return select(call, false, false); }},
    {"rejectattr", [](const Call& call) { return select(call, false, true); }},
    {"replace", replace},
    {"reverse", reverse},
    {"round", round},
    {"safe", [](const Call& call) { return JinjaValue(call.text(), true); }},
    {"select", [](const Call& call) { return select(call, true, false); }},
    {"selectattr", [](const Call& call) { return select(call, true, true); }},
    {"sort", sort},
    {"string", [](const Call& call) { return call.like(call.text()); }},
    {"sum", sum},
    {"title", title},
    {"tojson", tojson},
    {"trim", trim},
    {"unique", unique},
    {"upper", map_text<python::upper>},
});

struct Test {
  std::string_view name;
  bool (*holds)(const Call&);
};

int64_t whole(const JinjaValue& value) {
  check_defined(value);
  const auto integer = value.try_integer();
  if (!integer) throw JinjaFault("an integer test of a value of kind " + value.kind());
  return *integer;
}

const JinjaValue& other(const Call& call) {
  if (call.arguments.positional.size() != 1 || !call.arguments.named.empty())
    throw JinjaFault("the test takes one argument");
  return call.arguments.positional[0];
}

bool is_equal(const Call& call) { return equal(call.input, other(call), call.meter()); }
bool is_unequal(const Call& call) { return !is_equal(call); }
bool is_less(const Call& call) { return compare(call.input, other(call), call.meter()) < 0; }
bool is_at_most(const Call& call) { return compare(call.input, other(call), call.meter()) <= 0; }
bool is_more(const Call& call) { return compare(call.input, other(call), call.meter()) > 0; }
bool is_at_least(const Call& call) { return compare(call.input, other(call), call.meter()) >= 0; }
bool is_iterable(const Call& call) {
  return call.input.is_sequence() || call.input.is_text() || call.input.is_dictionary() ||
         call.input.is_undefined();
}

bool is_sequence(const Call& call) {
  return call.input.is_sequence() ? call.input.has_places() : is_iterable(call);
}

bool is_divisible(const Call& call) {
  const int64_t divisor = whole(other(call));
  if (divisor == 0) throw JinjaFault("a division by zero");
  return divisor == -1 || whole(call.input) % divisor == 0;
}

constexpr auto kTests = std::to_array<Test>({
    {"!=", is_unequal},
    {"<", is_less},
    {"<=", is_at_most},
    {"==", is_equal},
    {">", is_more},
    {">=", is_at_least},
    {"boolean", [](const Call& call) { return call.input.is_bool(); }},
    {"callable", [](const Call& call) { return call.input.is_callable(); }},
    {"defined", [](const Call& call) { return !call.input.is_undefined(); }},
    {"divisibleby", is_divisible},
    {"eq", is_equal},
    {"equalto", is_equal},
    {"even", [](const Call& call) { return whole(call.input) % 2 == 0; }},
    {"false", [](const Call& call) { return call.input.is_bool() && !call.input.is_true(); }},
    {"float", [](const Call& call) { return call.input.is_float(); }},
    {"ge", is_at_least},
    {"greaterthan", is_more},
    {"gt", is_more},
    {"in", [](const Call& call) { return contains(other(call), call.input, call.meter()); }},
    {"integer", [](const Call& call) { return call.input.try_integer() && !call.input.is_bool(); }},
    {"iterable", is_iterable},
    {"le", is_at_most},
    {"lessthan", is_less},
    {"lower", [](const Call& call) { return python::is_lower(call.text()); }},
    {"lt", is_less},
    {"mapping", [](const Call& call) { return call.input.is_dictionary(); }},
    {"ne", is_unequal},
    {"none", [](const Call& call) { return call.input.is_none(); }},
    {"number", [](const Call& call) { return call.input.is_number(); }},
    {"odd", [](const Call& call) { return whole(call.input) % 2 != 0; }},
    {"sequence", is_sequence},
    {"string", [](const Call& call) { return call.input.is_text(); }},
    {"true", [](const Call& call) { return call.input.is_bool() && call.input.is_true(); }},
    {"undefined", [](const Call& call) { return call.input.is_undefined(); }},
    {"upper", [](const Call& call) { return python::is_upper(call.text()); }},
});

JinjaValue dictionary_of(const Call& call) {
  JinjaValue::Pairs pairs;
  if (call.arguments.positional.size() > 1) throw JinjaFault("dict takes one argument");
  for (const JinjaValue& given : call.arguments.positional) {
    if (!given.is_dictionary()) throw JinjaFault("dict takes a dict");
    pairs = given.pairs();
  }
  for (const auto& [name, value] : call.arguments.named) {
    const auto known = std::ranges::find_if(pairs, [&, key = &name](const auto& pair) {
      return pair.first.is_text() && pair.first.text() == *key;
    });
    if (known != pairs.end()) {
      known->second = value;
    } else {
      pairs.emplace_back(JinjaValue(name), value);
    }
  }
  call.meter().spend_items(std::ssize(pairs));
  return JinjaValue::dictionary(std::move(pairs));
}

JinjaValue make_namespace(const Call& call) {
  const JinjaValue fields = dictionary_of(call);
  JinjaNamespace& made = call.host.namespaces.emplace_back();
  for (const auto& [key, value] : fields.pairs()) {
    if (!key.is_text() || key.text().starts_with('_'))
      throw JinjaFault("a field of a namespace must be a name without _ in front");
    made.fields.emplace_back(key.text(), value);
  }
  return JinjaValue(&made);
}

JinjaValue range(const Call& call) {
  const auto given = call.parameters("range", {"start", "stop", "step"});
  const int64_t first = given.integer_or(0, 0);
  given.require(0);
  const int64_t begin = given[1] == nullptr ? 0 : first;
  const int64_t end = given[1] == nullptr ? first : given.integer_or(1, 0);
  const int64_t step = given.integer_or(2, 1);
  if (step == 0) throw JinjaFault("range with a step of 0");
  constexpr int64_t kLongest = 100000;  // Jinja's limit
  List numbers;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (std::ssize(numbers) >= kLongest) throw JinjaFault("range is too long");
    numbers.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  call.meter().spend_items(std::ssize(numbers));
  return JinjaValue::list(std::move(numbers), Row::kView);
}

JinjaValue raise(const Call& call) {
  const auto given = call.parameters("raise_exception", {"message"});
  throw JinjaFault("the template refuses: " + to_text(given.require(0), call.meter()));
}

JinjaValue time_now(const Call& call) {
  const auto given = call.parameters("strftime_now", {"format"});
  std::tm local{};
  localtime_r(&call.host.now, &local);
  std::array<char, 1024> text{};
  const size_t size = std::strftime(text.data(), text.size(), given.text(0).c_str(), &local);
  if (size == 0 && !given.text(0).empty()) throw JinjaFault("strftime_now: the format is too long");
  return JinjaValue(std::string(text.data(), size));
}

constexpr auto kFunctions = std::to_array<Filter>({{"dict", dictionary_of},
                                                   {"namespace", make_namespace},
                                                   {"raise_exception", raise},
                                                   {"range", range},
                                                   {"strftime_now", time_now}});

template <class Entry, size_t N>
const Entry* try_find(const std::array<Entry, N>& entries, std::string_view name) {
  const auto found = std::ranges::find(entries, name, &Entry::name);
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace

bool is_jinja_filter(std::string_view name) { return try_find(kFilters, name) != nullptr; }
bool is_jinja_test(std::string_view name) { return try_find(kTests, name) != nullptr; }
bool is_jinja_function(std::string_view name) { return try_find(kFunctions, name) != nullptr; }

bool is_loop_attribute(std::string_view name) {
  static constexpr auto kAttributes = std::to_array<std::string_view>(
      {"cycle", "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem",
       "previtem", "revindex", "revindex0"});
  return std::ranges::find(kAttributes, name) != kAttributes.end();
}

JinjaValue apply_jinja_filter(std::string_view name, const JinjaValue& input,
                              const JinjaArguments& arguments, JinjaHost& host) {
  constexpr int32_t kMostFilters = 20;
  host.meter.spend(1);
  if (host.depth >= kMostFilters) throw JinjaFault("filters are nested too deep");
  ++host.depth;  // an error ends the rendering
  JinjaValue value = try_find(kFilters, name)->call({input, arguments, host});
  --host.depth;
  return value;
}

bool apply_jinja_test(std::string_view name, const JinjaValue& input,
                      const JinjaArguments& arguments, JinjaHost& host) {
  host.meter.spend(1);
  return try_find(kTests, name)->holds({input, arguments, host});
}

JinjaValue call_jinja_function(std::string_view name, const JinjaArguments& arguments,
                               JinjaHost& host) {
  const JinjaValue none;
  return try_find(kFunctions, name)->call({none, arguments, host});
}

}  // namespace tlt::chat_template

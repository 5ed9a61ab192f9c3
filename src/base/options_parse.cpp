// Reading options: TOML recipes and key=value overrides.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <type_traits>

#include "base/check.h"
#include "base/files.h"
#include "base/json_limits.h"
#include "base/options.h"
#include "base/sentence.h"
#include "base/toml_limits.h"

namespace tlt {
namespace {

constexpr int64_t kMaxRecipeBytes = 4 << 20;
constexpr size_t kMaxNameBytes = 200;  // of a name to compare with those of options

std::string_view last_word(std::string_view name) { return name.substr(name.rfind('.') + 1); }

std::string_view section(std::string_view name) { return name.substr(0, name.find('.')); }

std::set<std::string_view> words_of(std::string_view name) {
  std::set<std::string_view> words;
  while (!name.empty()) {
    const size_t end = std::min(name.find('_'), name.size());
    words.insert(name.substr(0, end));
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return words;
}

// Similarity of a known name: its kind (0 is the best), then the edit distance. nullopt: not
// similar.
std::optional<std::pair<int, size_t>> likeness(std::string_view known, std::string_view name) {
  const size_t edits = edit_distance(name, known);
  const bool same_section = section(known) == section(name);
  const bool same_word = last_word(known) == last_word(name);
  if (same_section && same_word) return std::pair(0, edits);
  const bool has_all_words =
      last_word(known).starts_with(last_word(name)) ||
      std::ranges::includes(words_of(last_word(known)), words_of(last_word(name)));
  if (same_section && has_all_words) return std::pair(1, size_t{0});  // of several the first
  if (edits <= 2) return std::pair(2, edits);
  if (same_word) return std::pair(3, edits);
  if (edits <= std::max<size_t>(name.size() / 3, 1)) return std::pair(4, edits);
  return std::nullopt;
}

bool is_group(const std::vector<OptionRef>& refs, std::string_view name) {
  const std::string prefix = std::string(name) + ".";
  return std::any_of(refs.begin(), refs.end(),
                     [&](const OptionRef& ref) { return ref.name.starts_with(prefix); });
}

// Returns what to type instead of an unknown name.
std::string advice(const std::vector<OptionRef>& refs, std::string_view name,
                   const NameHint& hint) {
  if (std::string known = hint ? hint(name) : ""; !known.empty()) return known;
  const std::string nearest = nearest_option(refs, name);
  return nearest.empty() ? "`tlt options` lists all of them" : "did you mean " + nearest + "?";
}

// nullptr: there is no such option.
const OptionRef* find_option(const std::vector<OptionRef>& refs, std::string_view name) {
  const auto found = std::ranges::find(refs, name, &OptionRef::name);
  return found == refs.end() ? nullptr : &*found;
}

// Why there is no option of this name.
std::string complaint(const std::vector<OptionRef>& refs, std::string_view name,
                      const std::string& place, const NameHint& hint) {
  if (!is_group(refs, name))
    return fmt::format("{}: unknown option: {}; {}", place, name, advice(refs, name, hint));
  return fmt::format("{}: {} is a group of options; set one of them, such as {}", place, name,
                     std::ranges::find_if(refs, [&](const OptionRef& ref) {
                       return ref.name.starts_with(std::string(name) + ".");
                     })->name);
}

template <class T>
constexpr std::string_view kExpected = "";
template <>
constexpr std::string_view kExpected<bool> = "true or false";
template <>
constexpr std::string_view kExpected<int64_t> = "an integer";
template <>
constexpr std::string_view kExpected<double> = "a number";
template <>
constexpr std::string_view kExpected<std::string> = "a string";
template <class T>
constexpr std::string_view kExpectedList = "";
template <>
constexpr std::string_view kExpectedList<int64_t> = "a list of integers";
template <>
constexpr std::string_view kExpectedList<double> = "a list of numbers";
template <>
constexpr std::string_view kExpectedList<std::string> = "a list of strings";

std::string describe(const toml::node& node) {
  std::ostringstream text;
  text << toml::node_view<const toml::node>(node);
  switch (node.type()) {
    case toml::node_type::string:
      return "the string " + text.str();
    case toml::node_type::integer:
      return "the integer " + text.str();
    case toml::node_type::floating_point:
      return "the number " + text.str();
    case toml::node_type::boolean:
      return text.str();
    case toml::node_type::array:
      return "the list " + text.str();
    case toml::node_type::table:
      return "a table";
    default:
      return text.str();
  }
}

// False when the node is of another type; the value is then unchanged.
template <class T>
bool try_assign(const toml::node& node, T& value) {
  const std::optional<T> found = node.value_exact<T>();
  if (found) value = *found;
  return found.has_value();
}

bool try_assign(const toml::node& node, double& value) {
  if (!node.is_number()) return false;
  value = node.is_integer() ? static_cast<double>(node.as_integer()->get())
                            : node.as_floating_point()->get();
  return true;
}

template <class T>
bool try_assign(const toml::node& node, std::vector<T>& values) {
  std::vector<T> read;
  if (const toml::array* array = node.as_array()) {
    for (const toml::node& item : *array) {
      if (!try_assign(item, read.emplace_back())) return false;
    }
  } else if (!try_assign(node, read.emplace_back())) {
    return false;
  }
  values = std::move(read);
  return true;
}

template <class T>
std::string_view expected(const T&) {
  return kExpected<T>;
}
template <class T>
std::string_view expected(const std::vector<T>&) {
  return kExpectedList<T>;
}

void assign(const OptionRef& ref, const toml::node& node, const std::string& place) {
  std::visit(
      [&](auto* value) {
        TLT_CHECK_INPUT(try_assign(node, *value), place, ": ", ref.name, ": expected ",
                        expected(*value), ", got ", describe(node));
      },
      ref.value);
}

// A TOML table as JSON on one line.
std::string json_of(const toml::table& table) {
  std::ostringstream text;
  text << toml::json_formatter(table, toml::format_flags::none);
  return nlohmann::ordered_json::parse(text.str()).dump();
}

class TomlReader {
 public:
  TomlReader(const std::vector<OptionRef>& refs, const std::string& place, const NameHint& hint)
      : refs_(refs), place_(place), hint_(hint) {}

  void read(const toml::table& table) {
    read(table, "");
    if (further_lines_.empty()) TLT_CHECK_INPUT(complaint_.empty(), complaint_);
    std::ranges::sort(further_lines_);
    TLT_CHECK_INPUT(complaint_.empty(), complaint_, "; further unknown options, by line: ",
                    fmt::format("{}", fmt::join(further_lines_, ", ")));
  }

 private:
  void read(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      if (prefix.empty() && key.str() == kHistoryTable && node.is_array_of_tables()) continue;
      const std::string path = prefix + std::string(key.str());
      const std::string name(without_verl_prefix(path));
      const std::string line = fmt::format("{}:{}", place_, key.source().begin.line);
      const toml::table* inner = node.as_table();
      if (inner && try_assign_table(*inner, name)) continue;
      if (inner && (!inner->empty() || is_group(refs_, name) || name == "actor_rollout_ref")) {
        read(*inner, path + ".");
      } else if (const OptionRef* ref = find_option(refs_, name)) {
        TLT_CHECK_INPUT(seen_.insert(name).second, line, ": ", name,
                        " is given twice; keep one (the prefix actor_rollout_ref. is ignored)");
        assign(*ref, node, line);
      } else if (complaint_.empty()) {
        complaint_ = complaint(refs_, name, line, hint_);
      } else {
        further_lines_.push_back(key.source().begin.line);
      }
    }
  }

  // Sets an option whose value is a table in a string ("{}") from a TOML table.
  bool try_assign_table(const toml::table& table, const std::string& name) {
    const auto ref = std::ranges::find(refs_, name, &OptionRef::name);
    if (ref == refs_.end() || !std::holds_alternative<std::string*>(ref->value)) return false;
    std::string& value = *std::get<std::string*>(ref->value);
    if (!value.starts_with('{')) return false;
    value = json_of(table);
    seen_.insert(name);
    return true;
  }

  const std::vector<OptionRef>& refs_;
  const std::string& place_;
  const NameHint& hint_;
  std::set<std::string> seen_;
  std::string complaint_;  // of the first unknown option
  std::vector<uint32_t> further_lines_;
};

// Splits "a, 'b,c', d" at the commas outside of quotes.
std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  std::string item;
  char open_quote = 0;
  bool escaped = false;
  for (const char c : text) {
    if (!open_quote && c == ',') {
      items.push_back(std::move(item));
      item.clear();
      continue;
    }
    item += c;
    if (!open_quote && (c == '"' || c == '\'')) {
      open_quote = c;
    } else if (c == open_quote && !escaped) {
      open_quote = 0;
    }
    escaped = open_quote == '"' && c == '\\' && !escaped;
  }
  items.push_back(std::move(item));
  return items;
}

std::string_view strip(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Joins what split_list() separated within names with settings: countdown:seed=1,size=64 is one
// item.
void join_settings(std::vector<std::string>& items) {
  std::vector<std::string> joined;
  for (std::string& item : items) {
    const std::string_view setting = strip(item);
    const size_t key_end = setting.find_first_not_of("abcdefghijklmnopqrstuvwxyz_");
    const bool is_setting = key_end != setting.npos && setting[key_end] == '=';
    const bool follows_one = !joined.empty() && joined.back().find(':') < joined.back().find('=');
    if (is_setting && follows_one) {
      joined.back() += "," + std::string(setting);
    } else {
      joined.push_back(std::move(item));
    }
  }
  items = std::move(joined);
}

// Reads a value of the command line by the option's type, as in TOML: 8_4_48 is a string for a
// string option and 8448 for an integer option.
template <class T>
bool try_parse(std::string_view text, T& value) {
  if (std::is_same_v<T, bool> && text == "True") text = "true";
  if (std::is_same_v<T, bool> && text == "False") text = "false";
  const std::string line = fmt::format("value = {}", text);
  if (exceeds_toml_limits(line)) return false;
  try {
    const toml::table table = toml::parse(line);
    return table.size() == 1 && try_assign(*table.get("value"), value);
  } catch (const toml::parse_error&) {
    return false;
  }
}

bool try_parse(std::string_view text, std::string& value) {
  if (!text.starts_with('"') && !text.starts_with('\'')) {
    value = text;
    return true;
  }
  return try_parse<std::string>(text, value);
}

template <class T>
bool try_parse(std::string_view text, std::vector<T>& values) {
  if (text.starts_with('[') && text.ends_with(']')) text = strip(text.substr(1, text.size() - 2));
  std::vector<T> read;
  if (!text.empty()) {
    std::vector<std::string> items = split_list(text);
    if constexpr (std::is_same_v<T, std::string>) join_settings(items);
    for (const std::string& item : items) {
      if (!try_parse(strip(item), read.emplace_back())) return false;
    }
  }
  values = std::move(read);
  return true;
}

// Sets a member of an option whose value is a table in a string ("{}"), as Hydra does:
// data.apply_chat_template_kwargs.enable_thinking=False. False: there is no such option.
bool try_set_in_table(const std::vector<OptionRef>& refs, std::string_view name,
                      std::string_view value_text) {
  const auto ref = std::ranges::find_if(refs, [&](const OptionRef& one) {
    const auto* const* text = std::get_if<std::string*>(&one.value);
    return text && (*text)->starts_with('{') && name.starts_with(one.name + ".");
  });
  if (ref == refs.end()) return false;
  std::string& text = *std::get<std::string*>(ref->value);
  using Json = nlohmann::ordered_json;
  const auto read = [](std::string_view toml) -> Json {
    const std::string line = fmt::format("value = {}", toml);
    check_toml_limits(line, "value");
    return Json::parse(json_of(toml::parse(line))).at("value");
  };
  Json table = parse_limited_json(text);
  try {
    if (table.is_discarded()) table = read(text);
    Json* place = &table;
    for (std::string_view rest = name.substr(ref->name.size() + 1); !rest.empty();) {
      const size_t dot = std::min(rest.find('.'), rest.size());
      place = &(*place)[std::string(rest.substr(0, dot))];
      rest.remove_prefix(std::min(dot + 1, rest.size()));
    }
    bool flag = false;
    if (value_text == "null") {
      *place = nullptr;
    } else if (try_parse(value_text, flag)) {
      *place = flag;
    } else {
      try {
        *place = read(value_text);
      } catch (const toml::parse_error&) {
        *place = std::string(value_text);  // strings need no quotes
      }
    }
  } catch (const std::exception&) {
    throw InputError(
        fmt::format("command line: {}: {} is {}, which has no such member", name, ref->name, text));
  }
  text = table.dump();
  return true;
}

}  // namespace

std::string_view without_verl_prefix(std::string_view name) {
  constexpr std::string_view kPrefix = "actor_rollout_ref.";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

std::string nearest_option(const std::vector<OptionRef>& refs, std::string_view name) {
  if (name.size() > kMaxNameBytes) return "";
  std::optional<std::pair<int, size_t>> best;
  std::string nearest;
  for (const OptionRef& ref : refs) {
    const auto found = likeness(ref.name, name);
    if (!found || (best && *best <= *found)) continue;
    best = found;
    nearest = ref.name;
  }
  return nearest;
}

void apply_toml_text(const std::vector<OptionRef>& refs, std::string_view text,
                     const std::string& place, const NameHint& hint) {
  check_toml_limits(text, place);
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw InputError(fmt::format("{}:{}:{}: not TOML: {}", place, error.source().begin.line,
                                 error.source().begin.column, error.description()));
  }
  TomlReader(refs, place, hint).read(table);
}

void apply_toml_file(const std::vector<OptionRef>& refs, const std::string& path,
                     const NameHint& hint) {
  apply_toml_text(refs, read_file(path, kMaxRecipeBytes), path, hint);
}

std::string apply_override(const std::vector<OptionRef>& refs, std::string_view text,
                           const NameHint& hint) {
  const size_t equals = text.find('=');
  TLT_CHECK_INPUT(equals != std::string_view::npos && equals > 0, "not an option: ", text,
                  "; give name=value, such as rollout.n=8");
  std::string_view given = strip(text.substr(0, equals));
  given.remove_prefix(std::min(given.find_first_not_of('+'), given.size()));  // Hydra's "+"
  const std::string name(without_verl_prefix(given));
  check_toml_limits(name, "command line");
  const std::string_view value_text = strip(text.substr(equals + 1));
  if (try_set_in_table(refs, name, value_text)) return name;
  const OptionRef* ref = find_option(refs, name);
  TLT_CHECK_INPUT(ref != nullptr, complaint(refs, name, "command line", hint));
  std::visit(
      [&](auto* value) {
        TLT_CHECK_INPUT(try_parse(value_text, *value), "command line: ", name, ": expected ",
                        expected(*value), ", got ", value_text.empty() ? "nothing" : value_text);
      },
      ref->value);
  return name;
}

}  // namespace tlt

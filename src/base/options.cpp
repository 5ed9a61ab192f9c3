// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/toml_limits.h"

namespace tlt {
namespace {

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

std::string one_text(bool value) { return value ? "true" : "false"; }
std::string one_text(int64_t value) { return fmt::format("{}", value); }
std::string one_text(const std::string& value) { return quote(value); }

// The shortest string that reads back to the same double, with a decimal point: 1 is written 1.0.
std::string one_text(double value) {
  std::string text = fmt::format("{}", value);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

template <class T>
std::string one_text(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) text += (text.size() > 1 ? ", " : "") + one_text(value);
  return text + "]";
}

// "rollout.optim.lr" -> {"rollout.optim", "lr"}
std::pair<std::string, std::string> split_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// Splits a digest line "name = value".
std::pair<std::string_view, std::string_view> split_line(std::string_view line) {
  const size_t equals = line.find(" = ");
  if (equals == std::string_view::npos) return {line, ""};
  return {line.substr(0, equals), line.substr(equals + 3)};
}

constexpr size_t kLongList = 200;  // bytes

// The first item of list `in` that list `from` lacks, as to_text() writes it; empty: none.
std::string first_missing(const toml::array& from, const toml::array& in) {
  for (const toml::node& item : in) {
    if (std::ranges::any_of(from, [&](const toml::node& other) {
          return toml::node_view(other) == toml::node_view(item);
        }))
      continue;
    std::ostringstream text;
    text << toml::toml_formatter(item, toml::format_flags::none);
    return text.str();
  }
  return "";
}

// Describes the difference of an option's values: for long lists, an item that only one has.
std::string value_difference(std::string_view name, std::string_view here, std::string_view there) {
  const bool are_lists = here.starts_with('[') && there.starts_with('[');
  const std::string both = fmt::format("here = {}\nthere = {}", here, there);
  if (are_lists && here.size() + there.size() > kLongList && !exceeds_toml_limits(both)) {
    try {
      const toml::table lists = toml::parse(both);
      const toml::array &ours = *lists["here"].as_array(), &theirs = *lists["there"].as_array();
      if (const std::string item = first_missing(theirs, ours); !item.empty())
        return fmt::format("{} has {} here and not there", name, item);
      if (const std::string item = first_missing(ours, theirs); !item.empty())
        return fmt::format("{} has {} there and not here", name, item);
    } catch (const toml::parse_error&) {  // one is from a damaged file: show both values
    }
  }
  return fmt::format("{} is {} here and {} there", name, here, there);
}

std::string_view next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

}  // namespace

void OptionCollector::add(std::string_view name, Affects affects, std::string_view help,
                          OptionValue value) {
  OptionRef ref{prefix_ + std::string(name), affects, std::string(help), value};
  TLT_CHECK(help.find('\n') == std::string_view::npos, "option ", ref.name, ": help is one line");
  for (const OptionRef& other : refs_) {
    TLT_CHECK(other.name != ref.name, "option ", ref.name, " is declared twice");
  }
  refs_.push_back(std::move(ref));
}

size_t OptionCollector::enter(std::string_view group) {
  const size_t outer = prefix_.size();
  prefix_ += std::string(group) + ".";
  return outer;
}

void OptionCollector::leave(size_t outer) { prefix_.resize(outer); }

std::string_view to_string(Affects affects) {
  switch (affects) {
    case Affects::kResults:
      return "results";
    case Affects::kSpeed:
      return "speed";
    case Affects::kPlace:
      return "place";
  }
  TLT_CHECK(false, "Affects ", static_cast<int>(affects));
  return {};
}

std::string to_text(const OptionValue& value) {
  return std::visit([](const auto* pointer) { return one_text(*pointer); }, value);
}

std::string to_toml(const std::vector<OptionRef>& refs) {
  // TOML opens a table once, so its options are written together; tables and options are in the
  // order of declaration.
  std::vector<std::string> tables = {""};
  std::map<std::string, std::string> bodies;
  for (const OptionRef& ref : refs) {
    const auto [table, key] = split_name(ref.name);
    if (std::find(tables.begin(), tables.end(), table) == tables.end()) tables.push_back(table);
    bodies[table] += fmt::format("# [{}] {}\n{} = {}\n", to_string(ref.affects), ref.help, key,
                                 to_text(ref.value));
  }
  std::string text;
  for (const std::string& table : tables) {
    if (bodies[table].empty()) continue;
    if (!text.empty()) text += "\n";
    if (!table.empty()) text += "[" + table + "]\n";
    text += bodies[table];
  }
  return text;
}

std::string to_markdown(const std::vector<OptionRef>& refs) {
  const auto cell = [](std::string text) {
    for (size_t i = 0; (i = text.find('|', i)) != std::string::npos; i += 2) text.insert(i, "\\");
    return text;
  };
  std::string text, section;
  for (const OptionRef& ref : refs) {
    const std::string own = ref.name.substr(0, ref.name.find('.'));
    if (own != section || text.empty())
      text +=
          fmt::format("{}## {}\n\n| option | default | affects | meaning |\n|---|---|---|---|\n",
                      text.empty() ? "" : "\n", own);
    section = own;
    text += fmt::format("| `{}` | `{}` | {} | {} |\n", ref.name, cell(to_text(ref.value)),
                        to_string(ref.affects), cell(ref.help));
  }
  return text;
}

std::string options_digest(const std::vector<OptionRef>& refs, Affects affects) {
  std::string text;
  for (const OptionRef& ref : refs) {
    if (ref.affects == affects) text += ref.name + " = " + to_text(ref.value) + "\n";
  }
  return text;
}

std::string first_difference(std::string_view here, std::string_view there) {
  std::map<std::string_view, std::string_view> others;
  while (!there.empty()) others.insert(split_line(next_line(there)));
  while (!here.empty()) {
    const auto [name, value] = split_line(next_line(here));
    const auto other = others.find(name);
    if (other == others.end()) return fmt::format("{} is {} here and unknown there", name, value);
    if (other->second != value) return value_difference(name, value, other->second);
    others.erase(other);
  }
  if (others.empty()) return "";
  const auto& [name, value] = *others.begin();
  return fmt::format("{} is unknown here and {} there", name, value);
}

}  // namespace tlt

// SPDX-License-Identifier: Apache-2.0
#include "chat_template/jinja_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "chat_template/jinja_text.h"

namespace tlt::chat_template {
namespace {

int32_t depth_above(int32_t inner) {
  if (inner >= JinjaValue::kMaxDepth)
    throw JinjaFault(fmt::format("a value is nested more than {} deep", JinjaValue::kMaxDepth));
  return inner + 1;
}

bool equal_items(const JinjaValue::List& a, const JinjaValue::List& b, JinjaMeter& meter) {
  return std::ranges::equal(
      a, b, [&](const JinjaValue& x, const JinjaValue& y) { return equal(x, y, meter); });
}

// Strings of different lengths are not read.
bool equal_texts(std::string_view a, std::string_view b, JinjaMeter& meter) {
  if (a.size() != b.size()) return false;
  meter.spend_bytes(std::ssize(a));
  return a == b;
}

bool equal_pairs(const JinjaValue& a, const JinjaValue& b, JinjaMeter& meter) {
  if (a.pairs().size() != b.pairs().size()) return false;
  return std::ranges::all_of(a.pairs(), [&](const auto& pair) {
    const JinjaValue* other = b.try_find(pair.first, meter);
    return other != nullptr && equal(pair.second, *other, meter);
  });
}

std::strong_ordering order_of(double a, double b) {
  return a < b   ? std::strong_ordering::less
         : a > b ? std::strong_ordering::greater
                 : std::strong_ordering::equal;
}

int sign_of(std::strong_ordering order) {
  return std::is_lt(order) ? -1 : std::is_gt(order) ? 1 : 0;
}

}  // namespace

void JinjaMeter::spend(int64_t steps) {
  if (steps <= left_) {
    left_ -= steps;
    return;
  }
  left_ = 0;
  throw JinjaFault("the rendering takes too many steps");
}

JinjaValue JinjaValue::list(List items, Row row) {
  int32_t inner = 0;
  for (const JinjaValue& item : items) inner = std::max(inner, item.depth());
  return JinjaValue(
      Variant(Sequence{std::make_shared<const List>(std::move(items)), row, depth_above(inner)}));
}

JinjaValue JinjaValue::dictionary(Pairs pairs) {
  int32_t inner = 0;
  for (const auto& [key, value] : pairs) inner = std::max({inner, key.depth(), value.depth()});
  return JinjaValue(
      Variant(Dictionary{std::make_shared<const Pairs>(std::move(pairs)), depth_above(inner)}));
}

JinjaValue JinjaValue::from_json(const nlohmann::ordered_json& json, int32_t depth) {
  using Kind = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Kind::boolean:
      return JinjaValue(json.get<bool>());
    case Kind::number_integer:
      return JinjaValue(json.get<int64_t>());
    case Kind::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX)
        throw JinjaFault(fmt::format("{} is beyond 64 bits", json.get<uint64_t>()));
      return JinjaValue(json.get<int64_t>());
    case Kind::number_float:
      return JinjaValue(json.get<double>());
    case Kind::string:
      return JinjaValue(json.get<std::string>());
    case Kind::array: {
      List items;
      for (const auto& item : json) items.push_back(from_json(item, depth_above(depth)));
      return list(std::move(items));
    }
    case Kind::object: {
      Pairs pairs;
      for (const auto& [name, value] : json.items())
        pairs.emplace_back(JinjaValue(name), from_json(value, depth_above(depth)));
      return dictionary(std::move(pairs));
    }
    default:
      return none();
  }
}

std::optional<int64_t> JinjaValue::try_integer() const {
  if (const bool* value = std::get_if<bool>(&value_)) return *value ? 1 : 0;
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return *value;
  return std::nullopt;
}

double JinjaValue::number() const {
  if (const double* value = std::get_if<double>(&value_)) return *value;
  return static_cast<double>(*try_integer());
}

JinjaNamespace* JinjaValue::try_namespace() const {
  JinjaNamespace* const* value = std::get_if<JinjaNamespace*>(&value_);
  return value == nullptr ? nullptr : *value;
}

const JinjaValue* JinjaValue::try_find(std::string_view key, JinjaMeter& meter) const {
  meter.spend_names(std::ssize(pairs()));
  for (const auto& [name, value] : pairs())
    if (name.is_text() && equal_texts(name.text(), key, meter)) return &value;
  return nullptr;
}

const JinjaValue* JinjaValue::try_find(const JinjaValue& key, JinjaMeter& meter) const {
  if (key.is_text()) return try_find(key.text(), meter);
  for (const auto& [name, value] : pairs())
    if (equal(name, key, meter)) return &value;
  return nullptr;
}

bool JinjaValue::is_true() const {
  if (is_undefined() || is_none()) return false;
  if (is_text()) return !text().empty();
  if (is_sequence()) return !items().empty() || is_row(Row::kGenerator);
  if (is_dictionary()) return !pairs().empty();
  return is_number() ? number() != 0 : true;
}

std::string JinjaValue::kind() const {
  static constexpr const char* kKinds[] = {"undefined", "None", "bool", "int",       "float",
                                           "str",       "list", "dict", "namespace", "function"};
  if (!is_sequence() || is_row(Row::kList)) return kKinds[value_.index()];
  return is_tuple() ? "tuple" : is_row(Row::kView) ? "view" : "generator";
}

int32_t JinjaValue::depth() const {
  if (is_sequence()) return std::get<Sequence>(value_).depth;
  return is_dictionary() ? std::get<Dictionary>(value_).depth : 0;
}

bool equal(const JinjaValue& a, const JinjaValue& b, JinjaMeter& meter) {
  meter.spend(1);
  if (a.is_text() && b.is_text()) return equal_texts(a.text(), b.text(), meter);
  if (a.is_number() && b.is_number()) {
    const auto x = a.try_integer(), y = b.try_integer();
    return x && y ? *x == *y : a.number() == b.number();
  }
  if (a.is_sequence() && b.is_sequence())
    return a.has_places() && a.row() == b.row() && equal_items(a.items(), b.items(), meter);
  if (a.is_dictionary() && b.is_dictionary()) return equal_pairs(a, b, meter);
  if (a.is_callable() && b.is_callable())
    return a.callable().macro == b.callable().macro && a.callable().name == b.callable().name;
  if (a.try_namespace() || b.try_namespace()) return a.try_namespace() == b.try_namespace();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

int compare(const JinjaValue& a, const JinjaValue& b, JinjaMeter& meter) {
  meter.spend(1);
  if (a.is_text() && b.is_text()) {
    meter.spend_bytes(std::min(std::ssize(a.text()), std::ssize(b.text())));
    return sign_of(a.text() <=> b.text());  // UTF-8 sorts like code points
  }
  if (a.is_number() && b.is_number()) {
    const auto x = a.try_integer(), y = b.try_integer();
    return sign_of(x && y ? *x <=> *y : order_of(a.number(), b.number()));
  }
  if (a.is_sequence() && b.is_sequence() && a.has_places() && a.row() == b.row()) {
    const auto &x = a.items(), &y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i], meter)) return compare(x[i], y[i], meter);
    return sign_of(x.size() <=> y.size());
  }
  throw JinjaFault(fmt::format("{} and {} have no order", a.kind(), b.kind()));
}

namespace {

void append_repr(std::string& out, const JinjaValue& value, JinjaMeter& meter);

void append_pairs(std::string& out, const JinjaValue& value, JinjaMeter& meter) {
  out += "{";
  for (const auto& pair : value.pairs()) {
    if (&pair != value.pairs().data()) out += ", ";
    append_repr(out, pair.first, meter);
    out += ": ";
    append_repr(out, pair.second, meter);
  }
  out += "}";
}

void append_items(std::string& out, const JinjaValue& value, JinjaMeter& meter) {
  out += value.is_tuple() ? "(" : "[";
  for (const JinjaValue& item : value.items()) {
    if (&item != value.items().data()) out += ", ";
    append_repr(out, item, meter);
  }
  if (value.is_tuple() && value.items().size() == 1) out += ",";
  out += value.is_tuple() ? ")" : "]";
}

void append_repr(std::string& out, const JinjaValue& value, JinjaMeter& meter) {
  meter.spend(1);
  const size_t before = out.size();
  if (value.has_places()) return append_items(out, value, meter);
  if (value.is_dictionary()) return append_pairs(out, value, meter);
  if (value.is_text()) {
    meter.spend_characters(std::ssize(value.text()));
    if (value.is_markup()) out += "Markup(";
    out += python::repr(value.text());
    if (value.is_markup()) out += ")";
  } else if (value.is_bool()) {
    out += value.is_true() ? "True" : "False";
  } else if (const auto integer = value.try_integer()) {
    out += std::to_string(*integer);
  } else if (value.is_float()) {
    out += python::repr(value.number());
  } else if (value.is_none() || value.is_undefined()) {
    out += value.is_none() ? "None" : "Undefined";
  } else {
    throw JinjaFault("a " + value.kind() + " cannot be written as text");
  }
  meter.spend_bytes(std::ssize(out) - static_cast<int64_t>(before));
}

// Writes JSON as Python's json.dumps().
class JsonWriter {
 public:
  JsonWriter(const JinjaJsonStyle& style, JinjaMeter& meter) : style_(style), meter_(meter) {}

  void write(const JinjaValue& value, int32_t level) {
    meter_.spend(1);
    if (value.is_text()) {
      write_text(value.text());
    } else if (value.has_places()) {
      write_all(value.items(), level, '[', ']',
                [&](const JinjaValue& item) { write(item, level + 1); });
    } else if (value.is_dictionary()) {
      write_dictionary(value.pairs(), level);
    } else {
      out_ += plain(value);
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string plain(const JinjaValue& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.is_true() ? "true" : "false";
    if (const auto integer = value.try_integer()) return std::to_string(*integer);
    if (!value.is_float())
      throw JinjaFault(value.is_undefined() && !value.undefined_name().empty()
                           ? "tojson of " + value.undefined_name() + ", which is undefined"
                           : "tojson of a value of kind " + value.kind());
    if (std::isnan(value.number())) return "NaN";
    if (std::isinf(value.number())) return value.number() > 0 ? "Infinity" : "-Infinity";
    return python::repr(value.number());
  }

  void write_text(const std::string& text) {
    meter_.spend_characters(1 + std::ssize(text));
    out_ += nlohmann::ordered_json(text).dump(-1, ' ', style_.is_ascii);
  }

  void write_dictionary(const JinjaValue::Pairs& pairs, int32_t level) {
    std::vector<std::pair<JinjaValue, const JinjaValue*>> entries;
    for (const auto& [key, value] : pairs) entries.emplace_back(key, &value);
    if (style_.sorts_keys)
      std::ranges::stable_sort(entries, [&](const auto& a, const auto& b) {
        return compare(a.first, b.first, meter_) < 0;
      });
    write_all(entries, level, '{', '}', [&](const auto& entry) {
      write_text(entry.first.is_text() ? entry.first.text() : plain(entry.first));
      write_separator(style_.key_separator);
      write(*entry.second, level + 1);
    });
  }

  template <class Items, class Write>
  void write_all(const Items& items, int32_t level, char open, char close, const Write& write_one) {
    out_ += open;
    bool is_first = true;
    for (const auto& item : items) {
      if (!std::exchange(is_first, false)) write_separator(style_.item_separator);
      break_line(level + 1);
      write_one(item);
    }
    if (!is_first) break_line(level);
    out_ += close;
  }

  void write_separator(const std::string& separator) {
    meter_.spend_bytes(std::ssize(separator));
    out_ += separator;
  }

  void break_line(int32_t level) {
    if (!style_.indent) return;
    meter_.spend_bytes(std::ssize(*style_.indent) * level);
    out_ += '\n';
    for (int32_t i = 0; i < level; ++i) out_ += *style_.indent;
  }

  const JinjaJsonStyle& style_;
  JinjaMeter& meter_;
  std::string out_;
};

}  // namespace

std::string to_text(const JinjaValue& value, JinjaMeter& meter) {
  std::string out;
  if (!value.is_text() && !value.is_undefined()) append_repr(out, value, meter);
  if (!value.is_text()) return out;
  meter.spend_bytes(std::ssize(value.text()));
  return value.text();
}

std::string to_json(const JinjaValue& value, const JinjaJsonStyle& style, JinjaMeter& meter) {
  JsonWriter writer(style, meter);
  writer.write(value, 0);
  return writer.take();
}

JinjaValue::List to_items(const JinjaValue& value, JinjaMeter& meter) {
  JinjaValue::List items;
  if (value.is_sequence()) {
    meter.spend_items(std::ssize(value.items()));
    return value.items();
  }
  if (value.is_text()) {
    meter.spend_items(std::ssize(value.text()));
    for (const std::string_view character : python::characters(value.text()))
      items.emplace_back(std::string(character));
  } else if (value.is_dictionary()) {
    meter.spend_items(std::ssize(value.pairs()));
    for (const auto& [key, item] : value.pairs()) items.push_back(key);
  } else if (!value.is_undefined()) {
    throw JinjaFault("a value of kind " + value.kind() + " has no items");
  }
  return items;
}

}  // namespace tlt::chat_template

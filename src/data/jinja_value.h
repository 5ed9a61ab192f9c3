// JinjaValue: a value of a chat template: what Python would have in its place.
//
// Lists, tuples and dictionaries never change once made (the sandbox of transformers forbids it),
// so copies share them. A namespace is the one thing that changes; it belongs to the renderer.
//
// Not here   text as Python treats it (jinja_text.h); filters and methods (jinja_builtins.h).
// Threading  a value and what it shares: one thread at a time.
// Invariant  no value is nested deeper than kMaxDepth, so that walking and freeing it may recurse.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tlt::data {

// What a template does wrong while it is rendered; the renderer adds template and line.
class JinjaFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Counts what a rendering does. JinjaFault when it is too much.
class JinjaMeter {
 public:
  explicit JinjaMeter(int64_t steps) : left_(steps) {}

  void spend(int64_t steps);
  // For text that is made or walked, and for values that are. What all values of a rendering take
  // in memory is so bounded too: about 4 bytes a step, or 10.
  void spend_bytes(int64_t bytes) { spend(bytes / 4); }
  void spend_items(int64_t items) { spend(items > INT64_MAX / 16 ? INT64_MAX : items * 16); }

 private:
  int64_t left_;
};

struct JinjaNamespace;
struct JinjaStatement;

class JinjaValue {
 public:
  static constexpr int32_t kMaxDepth = 100;

  using List = std::vector<JinjaValue>;
  using Pairs = std::vector<std::pair<JinjaValue, JinjaValue>>;  // keys are all different

  struct Undefined {
    std::string name;  // in messages
  };
  struct None {};
  struct Text {
    std::shared_ptr<const std::string> bytes;  // UTF-8
    bool is_markup;  // the `safe` filter's: text added to it is escaped for HTML
  };
  // A view (of a dictionary, a range) has a length, but neither places nor text; a generator (of
  // map, select …) can only be walked, and is true even when there is nothing in it.
  enum class Row { kList, kTuple, kView, kGenerator };
  struct Sequence {
    std::shared_ptr<const List> items;
    Row row;
    int32_t depth;
  };
  struct Dictionary {
    std::shared_ptr<const Pairs> pairs;
    int32_t depth;
  };
  struct Callable {
    const JinjaStatement* macro;  // nullptr: a function or a method of that name
    std::string_view name;
    int64_t scope = 0;  // of a macro: the number of the renderer's names that it sees
  };

  JinjaValue() : value_(Undefined{}) {}
  explicit JinjaValue(bool value) : value_(value) {}
  explicit JinjaValue(int64_t value) : value_(value) {}
  explicit JinjaValue(double value) : value_(value) {}
  explicit JinjaValue(std::string text, bool is_markup = false)
      : value_(Text{std::make_shared<const std::string>(std::move(text)), is_markup}) {}
  explicit JinjaValue(const char* text) : JinjaValue(std::string(text)) {}
  explicit JinjaValue(JinjaNamespace* value) : value_(value) {}
  explicit JinjaValue(Callable value) : value_(value) {}

  static JinjaValue none() { return JinjaValue(Variant(None{})); }
  static JinjaValue undefined(std::string name) {
    return JinjaValue(Variant(Undefined{std::move(name)}));
  }
  // JinjaFault: nested too deep.
  static JinjaValue list(List items, Row row = Row::kList);
  static JinjaValue dictionary(Pairs pairs);
  // JinjaFault: nested too deep, or a whole number beyond 64 bits.
  static JinjaValue from_json(const nlohmann::ordered_json& json, int32_t depth = 0);

  bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
  bool is_none() const { return std::holds_alternative<None>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_float() const { return std::holds_alternative<double>(value_); }
  bool is_text() const { return std::holds_alternative<Text>(value_); }
  bool is_sequence() const {  // of any row
    return std::holds_alternative<Sequence>(value_);
  }
  bool is_row(Row row) const { return is_sequence() && std::get<Sequence>(value_).row == row; }
  bool is_tuple() const { return is_row(Row::kTuple); }
  bool has_places() const { return is_row(Row::kList) || is_tuple(); }
  bool is_dictionary() const { return std::holds_alternative<Dictionary>(value_); }
  bool is_callable() const { return std::holds_alternative<Callable>(value_); }
  bool is_number() const { return is_float() || try_integer().has_value(); }
  bool is_markup() const { return is_text() && std::get<Text>(value_).is_markup; }

  // Of a whole number or a boolean, which Python counts among them.
  std::optional<int64_t> try_integer() const;

  // REQUIRES: it is of that kind.
  const std::string& text() const { return *std::get<Text>(value_).bytes; }
  Row row() const { return std::get<Sequence>(value_).row; }
  const List& items() const { return *std::get<Sequence>(value_).items; }
  const Pairs& pairs() const { return *std::get<Dictionary>(value_).pairs; }
  const Callable& callable() const { return std::get<Callable>(value_); }
  const std::string& undefined_name() const { return std::get<Undefined>(value_).name; }
  double number() const;

  JinjaNamespace* try_namespace() const;
  const JinjaValue* try_find(const JinjaValue& key) const;  // in a dictionary
  const JinjaValue* try_find(std::string_view key) const;

  bool is_true() const;  // as Python's bool()

  // "str", "list" … in messages.
  std::string kind() const;

  int32_t depth() const;

 private:
  using Variant = std::variant<Undefined, None, bool, int64_t, double, Text, Sequence, Dictionary,
                               JinjaNamespace*, Callable>;
  explicit JinjaValue(Variant value) : value_(std::move(value)) {}

  Variant value_;
};

struct JinjaNamespace {
  std::vector<std::pair<std::string, JinjaValue>> fields;
};

// As Python's ==; values of different kinds differ, 1 == 1.0 == true.
bool equal(const JinjaValue& a, const JinjaValue& b, JinjaMeter& meter);

// Below, equal or above 0 as a is less, equal or greater. JinjaFault: they have no order.
int compare(const JinjaValue& a, const JinjaValue& b, JinjaMeter& meter);

// As Python's str() and repr(). JinjaFault: a namespace, macro or function, which would show an
// address.
std::string to_text(const JinjaValue& value, JinjaMeter& meter);
std::string to_repr(const JinjaValue& value, JinjaMeter& meter);

struct JinjaJsonStyle {
  std::optional<std::string> indent;  // of one level
  std::string item_separator = ", ", key_separator = ": ";
  bool sorts_keys = false, is_ascii = false;
};

// As Python's json.dumps(). JinjaFault: undefined, or of a kind that JSON has not.
std::string to_json(const JinjaValue& value, const JinjaJsonStyle& style, JinjaMeter& meter);

// What a for loop walks: items, keys, characters; nothing of an undefined value. JinjaFault: no
// such thing.
JinjaValue::List to_items(const JinjaValue& value, JinjaMeter& meter);

}  // namespace tlt::data

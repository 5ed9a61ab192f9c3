// JinjaValue: a value of a chat template, with Python's semantics.
//
// Lists, tuples and dictionaries never change once made (the sandbox of transformers forbids it),
// so copies share them. Only a namespace can change; it belongs to the renderer.
//
// Not here   strings with Python's semantics (jinja_text.h); filters, tests and methods
//            (jinja_builtins.h).
// Threading  a value and what it shares: one thread at a time.
// Invariant  no value is nested deeper than kMaxDepth, so that traversing and freeing it can
//            recurse.
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

namespace tlt::chat_template {

// An error of a template during rendering; the renderer adds template and line.
class JinjaFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Counts the work of a rendering. JinjaFault when it exceeds the limit. A step is about 20 ns.
class JinjaMeter {
 public:
  explicit JinjaMeter(int64_t steps) : left_(steps) {}

  void spend(int64_t steps);
  // For strings that are copied, compared or searched, for those that are visited character by
  // character, and for values that are made or traversed. This also bounds the memory of all values
  // of a rendering: about 4 bytes per step, or 10.
  void spend_bytes(int64_t bytes) { spend(bytes / 4); }
  void spend_search(int64_t bytes) { spend(bytes / 2); }
  void spend_characters(int64_t bytes) { spend(bytes); }
  void spend_items(int64_t items) { spend(items > INT64_MAX / 16 ? INT64_MAX : items * 16); }
  // For names, whose length the lexer limits, or keys of which one is looked up.
  void spend_names(int64_t names) { spend(1 + names / 4); }

 private:
  int64_t left_;
};

struct JinjaNamespace;
struct JinjaStatement;

class JinjaValue {
 public:
  static constexpr int32_t kMaxDepth = 100;

  using List = std::vector<JinjaValue>;
  using Pairs = std::vector<std::pair<JinjaValue, JinjaValue>>;  // keys are distinct

  struct Undefined {
    std::string name;  // in error messages
  };
  struct None {};
  struct Text {
    std::shared_ptr<const std::string> bytes;  // UTF-8
    bool is_markup;  // the `safe` filter's: text added to it is HTML-escaped
  };
  // A view (of a dictionary, a range) has a length, but no positions and no printed form; a
  // generator (of map, select …) can only be iterated, and is true even when empty.
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
  // JinjaFault: nested too deep, or an integer beyond 64 bits.
  static JinjaValue from_json(const nlohmann::ordered_json& json, int32_t depth = 0);

  bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
  bool is_none() const { return std::holds_alternative<None>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_float() const { return std::holds_alternative<double>(value_); }
  bool is_text() const { return std::holds_alternative<Text>(value_); }
  bool is_sequence() const {  // of any kind of row
    return std::holds_alternative<Sequence>(value_);
  }
  bool is_row(Row row) const { return is_sequence() && std::get<Sequence>(value_).row == row; }
  bool is_tuple() const { return is_row(Row::kTuple); }
  bool has_places() const { return is_row(Row::kList) || is_tuple(); }
  bool is_dictionary() const { return std::holds_alternative<Dictionary>(value_); }
  bool is_callable() const { return std::holds_alternative<Callable>(value_); }
  bool is_number() const { return is_float() || try_integer().has_value(); }
  bool is_markup() const { return is_text() && std::get<Text>(value_).is_markup; }

  // The value of an integer or boolean, which is an integer in Python.
  std::optional<int64_t> try_integer() const;

  // REQUIRES: the value is of that kind.
  const std::string& text() const { return *std::get<Text>(value_).bytes; }
  Row row() const { return std::get<Sequence>(value_).row; }
  const List& items() const { return *std::get<Sequence>(value_).items; }
  const Pairs& pairs() const { return *std::get<Dictionary>(value_).pairs; }
  const Callable& callable() const { return std::get<Callable>(value_); }
  const std::string& undefined_name() const { return std::get<Undefined>(value_).name; }
  double number() const;

  JinjaNamespace* try_namespace() const;
  const JinjaValue* try_find(const JinjaValue& key, JinjaMeter& meter) const;  // in a dictionary
  const JinjaValue* try_find(std::string_view key, JinjaMeter& meter) const;

  bool is_true() const;  // as Python's bool()

  // "str", "list" … for error messages.
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

// Negative, 0 or positive as a is less, equal or greater. JinjaFault: they have no order.
int compare(const JinjaValue& a, const JinjaValue& b, JinjaMeter& meter);

// As Python's str(). JinjaFault: a namespace, macro or function, which would print an address.
std::string to_text(const JinjaValue& value, JinjaMeter& meter);

struct JinjaJsonStyle {
  std::optional<std::string> indent;  // of one level
  std::string item_separator = ", ", key_separator = ": ";
  bool sorts_keys = false, is_ascii = false;
};

// As Python's json.dumps(). JinjaFault: undefined, or of a kind that JSON lacks.
std::string to_json(const JinjaValue& value, const JinjaJsonStyle& style, JinjaMeter& meter);

// The items that a for loop visits: items, keys, characters; none of an undefined value.
// JinjaFault: not iterable.
JinjaValue::List to_items(const JinjaValue& value, JinjaMeter& meter);

}  // namespace tlt::chat_template

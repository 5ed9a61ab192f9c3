// SPDX-License-Identifier: Apache-2.0
#include "chat_template/jinja.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>

#include "base/local_time.h"
#include "chat_template/jinja_builtins.h"
#include "chat_template/jinja_lexer.h"
#include "chat_template/jinja_operations.h"
#include "chat_template/jinja_parser.h"

namespace tlt::chat_template {
namespace {

using Op = JinjaOperator;
using Tag = JinjaTag;

// Limit of nested calls: enough for every template, and less than a thread's stack can hold.
constexpr int32_t kMaxCalls = 500;

// The names that a block sets; those of outer blocks are visible through it.
struct Scope {
  Scope* outer;
  std::vector<std::pair<std::string_view, JinjaValue>> names;

  const JinjaValue* try_find(std::string_view name, JinjaMeter& meter) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
      meter.spend_names(std::ssize(scope->names));
      for (const auto& [known, value] : scope->names)
        if (known == name) return &value;
    }
    return nullptr;
  }

  void set(std::string_view name, JinjaValue value, JinjaMeter& meter) {
    meter.spend_names(std::ssize(names));
    for (auto& [known, held] : names) {
      if (known != name) continue;
      held = std::move(value);
      return;
    }
    names.emplace_back(name, std::move(value));
  }
};

struct Loop {
  const JinjaValue::List& items;
  size_t index = 0;
};

// Sets a variable until the end of a block.
template <class T>
class Replace {
 public:
  Replace(T& place, T value) : place_(place), before_(std::exchange(place, std::move(value))) {}
  ~Replace() { place_ = std::move(before_); }
  Replace(const Replace&) = delete;
  Replace& operator=(const Replace&) = delete;

 private:
  T& place_;
  T before_;
};

enum class Flow { kNext, kBreak, kContinue };

class Renderer {
 public:
  explicit Renderer(const JinjaLimits& limits)
      : meter_(limits.steps),
        host_{.meter = meter_,
              .namespaces = namespaces_,
              .now = limits.now.value_or(local_time_now())} {}

  JinjaRendering run(const JinjaBody& body, const nlohmann::ordered_json& variables) {
    Scope given{.outer = nullptr, .names = {}};
    for (const auto& [name, value] : variables.items())
      given.names.emplace_back(name, JinjaValue::from_json(value));
    scope_ = &given;
    const Inner top(*this);
    top_ = scope_;
    execute(body);
    return std::move(rendering_);
  }

  int line() const { return line_; }

 private:
  // Counts nested calls.
  struct Depth {
    explicit Depth(Renderer& renderer) : calls(renderer.calls_, renderer.calls_ + 1) {
      renderer.meter_.spend(1);
      if (renderer.calls_ > kMaxCalls) throw JinjaFault("macros or blocks are nested too deep");
    }
    Replace<int32_t> calls;
  };

  // Holds the names that are set until the end of a block.
  struct Inner {
    Inner(Renderer& renderer, Scope* outer)
        : scope{.outer = outer, .names = {}}, current(renderer.scope_, &scope) {}
    explicit Inner(Renderer& renderer) : Inner(renderer, renderer.scope_) {}
    Scope scope;
    Replace<Scope*> current;
  };

  // --- statements

  Flow execute(const JinjaBody& body) {
    for (const auto& statement : body) {
      const Flow flow = execute(*statement);
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow execute(const JinjaStatement& statement) {
    const Depth depth(*this);
    line_ = statement.line;
    switch (statement.tag) {
      case Tag::kText:
        print(statement.text);
        break;
      case Tag::kPrint: {
        const JinjaValue value = evaluate(*statement.expression);
        print(to_text(value, meter_));
        break;
      }
      case Tag::kSet:
        assign(statement, evaluate(*statement.expression));
        break;
      case Tag::kSetBlock:
        assign(statement, captured([&] { execute_inner(statement.body); }));
        break;
      case Tag::kIf:
        return execute_if(statement);
      case Tag::kFor:
        return execute_for(statement);
      case Tag::kMacro:
        set(statement.text, JinjaValue(JinjaValue::Callable{&statement, statement.text}));
        break;
      case Tag::kGeneration: {
        const auto begin = std::ssize(rendering_.text);
        execute_inner(statement.body);
        rendering_.generated.emplace_back(begin, std::ssize(rendering_.text));
        break;
      }
      case Tag::kBreak:
        return Flow::kBreak;
      case Tag::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNext;
  }

  // Counts all bytes of the text, not a part as a copy does: output is tokenized next.
  void print(const std::string& text) {
    meter_.spend_characters(std::ssize(text));
    *output_ += text;
  }

  Flow execute_inner(const JinjaBody& body) {
    const Inner inner(*this);
    return execute(body);
  }

  // The output of `run`, as a value.
  template <class Run>
  JinjaValue captured(const Run& run) {
    std::string text;
    const Replace<std::string*> output(output_, &text);
    run();
    return JinjaValue(std::move(text));
  }

  void assign(const JinjaStatement& statement, const JinjaValue& value) {
    if (!statement.is_unpacked) return assign(statement.targets[0], value);
    const JinjaValue::List items = to_items(value, meter_);
    if (items.size() != statement.targets.size())
      throw JinjaFault(
          fmt::format("{} values for {} names", items.size(), statement.targets.size()));
    for (size_t i = 0; i < items.size(); ++i) assign(statement.targets[i], items[i]);
  }

  void set(std::string_view name, JinjaValue value) { scope_->set(name, std::move(value), meter_); }

  void assign(const JinjaTarget& target, JinjaValue value) {
    if (target.field.empty()) return set(target.name, std::move(value));
    const JinjaValue* known = scope_->try_find(target.name, meter_);
    JinjaNamespace* fields = known == nullptr ? nullptr : known->try_namespace();
    if (fields == nullptr)
      throw JinjaFault(target.name + " is not a namespace, so its fields cannot be set");
    meter_.spend_names(std::ssize(fields->fields));
    for (auto& [field, held] : fields->fields) {
      if (field != target.field) continue;
      held = std::move(value);
      return;
    }
    fields->fields.emplace_back(target.field, std::move(value));
  }

  Flow execute_if(const JinjaStatement& statement) {
    for (const JinjaBranch& branch : statement.branches)
      if (!branch.condition || evaluate(*branch.condition).is_true()) return execute(branch.body);
    return Flow::kNext;
  }

  Flow execute_for(const JinjaStatement& statement) {
    const JinjaValue whole = evaluate(*statement.expression);
    const JinjaValue::List items = loop_items(statement, whole);
    if (items.empty()) return execute_inner(statement.other);
    Loop loop{.items = items};
    const Replace<Loop*> current(loop_, &loop);
    const Inner inner(*this);
    for (; loop.index < items.size(); ++loop.index) {
      scope_->names.clear();
      line_ = statement.line;
      assign(statement, items[loop.index]);
      if (execute(statement.body) == Flow::kBreak) break;
    }
    return Flow::kNext;
  }

  // The items that fulfil the condition.
  JinjaValue::List loop_items(const JinjaStatement& statement, const JinjaValue& whole) {
    JinjaValue::List items = to_items(whole, meter_);
    if (!statement.condition) return items;
    const Inner inner(*this);
    std::erase_if(items, [&](const JinjaValue& item) {
      scope_->names.clear();
      assign(statement, item);
      return !evaluate(*statement.condition).is_true();
    });
    return items;
  }

  // --- expressions

  JinjaValue evaluate(const JinjaExpression& expression) {
    const Depth depth(*this);
    line_ = expression.line;
    switch (expression.op) {
      case Op::kConstant:
        return expression.constant;
      case Op::kItem:
        return item_;
      case Op::kName:
        return look_up(expression.name);
      case Op::kLoop:
        return loop_attribute(expression.name);
      case Op::kList:
      case Op::kTuple:
        return JinjaValue::list(all(expression.parts), expression.op == Op::kTuple
                                                           ? JinjaValue::Row::kTuple
                                                           : JinjaValue::Row::kList);
      case Op::kDictionary:
        return make_dictionary(expression);
      case Op::kConditional:
        return evaluate_conditional(expression);
      case Op::kBinary:
        return evaluate_binary(expression);
      case Op::kNot:
        return JinjaValue(!part(expression, 0).is_true());
      case Op::kCall:
        return call(expression);
      default:
        return evaluate_access(expression);
    }
  }

  // What needs the value of its first part.
  JinjaValue evaluate_access(const JinjaExpression& expression) {
    if (expression.op == Op::kSlice) return evaluate_slice(expression);
    const JinjaValue first = part(expression, 0);
    switch (expression.op) {
      case Op::kAttribute:
        line_ = expression.line;
        return attribute_of(first, expression.name, meter_);
      case Op::kSubscript: {
        const JinjaValue key = part(expression, 1);
        line_ = expression.line;
        return item_of(first, key, meter_);
      }
      case Op::kBuiltin:
        return call_builtin(expression, first);
      case Op::kMap:
      case Op::kSelect:
      case Op::kSort:
        return evaluate_each(expression, first);
      default:  // kNegative
        if (!first.is_number()) throw JinjaFault("a sign before a value of kind " + first.kind());
        return first.is_float() ? JinjaValue(-first.number())
                                : operate("-", JinjaValue(int64_t{0}), first, meter_);
    }
  }

  JinjaValue evaluate_binary(const JinjaExpression& expression) {
    JinjaValue left = part(expression, 0);
    const std::string& sign = expression.name;
    if (sign == "and" || sign == "or")
      return left.is_true() == (sign == "or") ? left : part(expression, 1);
    const JinjaValue right = part(expression, 1);
    line_ = expression.line;
    return operate(sign, left, right, meter_);
  }

  JinjaValue call_builtin(const JinjaExpression& expression, const JinjaValue& input) {
    std::vector<std::optional<JinjaValue>> given(expression.parts.size() - 1);
    for (size_t i = 0; i < given.size(); ++i)
      if (expression.parts[i + 1]) given[i] = part(expression, i + 1);
    line_ = expression.line;
    meter_.spend(1);
    return expression.builtin->call({expression.builtin->name, input, given, meter_});
  }

  // map, select and sort.
  JinjaValue evaluate_each(const JinjaExpression& expression, const JinjaValue& whole) {
    std::vector<std::pair<JinjaValue, JinjaValue>> keyed;  // results and items
    line_ = expression.line;
    if (whole.is_true() || expression.op == Op::kSort) {
      for (const JinjaValue& item : to_items(whole, meter_)) {
        const Replace<JinjaValue> current(item_, item);
        keyed.emplace_back(part(expression, 1), item);
      }
    }
    if (expression.op == Op::kSort) {
      const bool is_reversed = expression.parts[2] && part(expression, 2).is_true();
      return sorted_by(std::move(keyed), is_reversed, meter_);
    }
    JinjaValue::List out;
    for (auto& [result, item] : keyed)
      if (expression.op == Op::kMap)
        out.push_back(std::move(result));
      else if (result.is_true())
        out.push_back(std::move(item));
    return JinjaValue::list(std::move(out), JinjaValue::Row::kGenerator);
  }

  JinjaValue part(const JinjaExpression& expression, size_t i) {
    return evaluate(*expression.parts[i]);
  }

  JinjaValue::List all(const std::vector<JinjaExpressionPtr>& parts) {
    JinjaValue::List values;
    meter_.spend_items(std::ssize(parts));
    for (const auto& one : parts) values.push_back(evaluate(*one));
    return values;
  }

  JinjaArguments arguments(const JinjaExpression& expression) {
    JinjaArguments given;
    for (size_t i = 1; i < expression.parts.size(); ++i)
      given.positional.push_back(part(expression, i));
    for (const auto& [name, value] : expression.keywords)
      given.named.emplace_back(name, evaluate(*value));
    return given;
  }

  JinjaValue look_up(const std::string& name) {
    if (const JinjaValue* known = scope_->try_find(name, meter_)) return *known;
    if (try_jinja_function(name) != nullptr) return JinjaValue(JinjaValue::Callable{nullptr, name});
    return JinjaValue::undefined(name);
  }

  JinjaValue loop_attribute(const std::string& name) const {
    const auto index = static_cast<int64_t>(loop_->index), size = std::ssize(loop_->items);
    if (name == "index0") return JinjaValue(index);
    if (name == "index") return JinjaValue(index + 1);
    if (name == "revindex0") return JinjaValue(size - index - 1);
    if (name == "revindex") return JinjaValue(size - index);
    if (name == "length") return JinjaValue(size);
    if (name == "first") return JinjaValue(index == 0);
    if (name == "last") return JinjaValue(index + 1 == size);
    const int64_t neighbour = index + (name == "previtem" ? -1 : 1);
    if (neighbour < 0 || neighbour >= size) return JinjaValue::undefined("loop." + name);
    return loop_->items[static_cast<size_t>(neighbour)];
  }

  JinjaValue make_dictionary(const JinjaExpression& expression) {
    const JinjaValue::List values = all(expression.parts);
    JinjaValue::Pairs pairs;
    for (size_t i = 0; i < values.size(); i += 2) {
      const auto known = std::ranges::find_if(
          pairs, [&](const auto& pair) { return equal(pair.first, values[i], meter_); });
      if (known != pairs.end()) {
        known->second = values[i + 1];
      } else if (values[i].is_sequence() || values[i].is_dictionary() || values[i].is_undefined()) {
        throw JinjaFault("a key of kind " + values[i].kind());
      } else {
        pairs.emplace_back(values[i], values[i + 1]);
      }
    }
    return JinjaValue::dictionary(std::move(pairs));
  }

  JinjaValue evaluate_conditional(const JinjaExpression& expression) {
    if (part(expression, 1).is_true()) return part(expression, 0);
    return expression.parts[2]
               ? part(expression, 2)
               : JinjaValue::undefined("an if without else, whose condition fails,");
  }

  JinjaValue evaluate_slice(const JinjaExpression& expression) {
    const auto bound = [&](size_t i) {
      return expression.parts[i] ? part(expression, i) : JinjaValue::none();
    };
    const JinjaValue whole = part(expression, 0);
    const JinjaSlice slice{.begin = bound(1), .end = bound(2), .step = bound(3)};
    line_ = expression.line;
    return slice_of(whole, slice, meter_);
  }

  JinjaValue call(const JinjaExpression& expression) {
    const std::string& name = expression.parts[0]->name;
    const JinjaValue called = look_up(name);
    JinjaArguments given = arguments(expression);
    line_ = expression.line;
    check_defined(called);
    if (!called.is_callable()) throw JinjaFault(name + " is not a function");
    if (called.callable().macro != nullptr) return call_macro(*called.callable().macro, given);
    const JinjaFunction* function = try_jinja_function(called.callable().name);
    if (function == nullptr)
      throw JinjaFault(name + ": a method must be called where it is accessed");
    return function->call(given, host_);
  }

  // A macro sees the names of the top level, with their values at the call.
  JinjaValue call_macro(const JinjaStatement& macro, const JinjaArguments& given) {
    const size_t count = macro.parameters.size();
    meter_.spend_names(std::ssize(macro.parameters) * std::ssize(given.named));
    if (given.positional.size() > count)
      throw JinjaFault(fmt::format("macro {} takes {} arguments", macro.text, count));
    for (const auto& [name, value] : given.named)
      if (std::ranges::none_of(macro.parameters, [&, wanted = &name](const auto& one) {
            return one.first == *wanted;
          }))
        throw JinjaFault("macro " + macro.text + " takes no argument " + name);
    const Replace<Loop*> around(loop_, nullptr);
    const Inner inner(*this, top_);
    for (size_t i = 0; i < count; ++i) set(macro.parameters[i].first, argument_of(macro, i, given));
    return captured([&] { execute(macro.body); });
  }

  JinjaValue argument_of(const JinjaStatement& macro, size_t i, const JinjaArguments& given) {
    const auto& [name, standard] = macro.parameters[i];
    for (const auto& [known, value] : given.named) {
      if (known != name) continue;
      if (i < given.positional.size())
        throw JinjaFault("macro " + macro.text + " is given " + name + " twice");
      return value;
    }
    if (i < given.positional.size()) return given.positional[i];
    return standard ? evaluate(*standard) : JinjaValue::undefined(name);
  }

  JinjaMeter meter_;
  std::deque<JinjaNamespace> namespaces_;
  JinjaHost host_;
  JinjaRendering rendering_;
  std::string* output_ = &rendering_.text;
  Scope* scope_ = nullptr;
  Scope* top_ = nullptr;  // of the names that macros see
  Loop* loop_ = nullptr;
  JinjaValue item_;
  int line_ = 1;
  int32_t calls_ = 0;
};

}  // namespace

JinjaTemplate JinjaTemplate::parse(std::string_view source, const std::string& name) {
  return {name, std::make_shared<const JinjaTree>(parse_jinja(source, name))};
}

bool JinjaTemplate::marks_generation() const { return tree_->marks_generation; }

JinjaRendering JinjaTemplate::render(const nlohmann::ordered_json& variables,
                                     const JinjaLimits& limits) const {
  Renderer renderer(limits);
  try {
    return renderer.run(tree_->body, variables);
  } catch (const JinjaFault& fault) {
    fail_template(name_, renderer.line(), fault.what());
  }
}

}  // namespace tlt::chat_template

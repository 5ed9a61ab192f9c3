// The part of JinjaExpressionParser for calls: filters, tests, methods, functions.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "chat_template/jinja_builtins.h"
#include "chat_template/jinja_expressions.h"
#include "chat_template/jinja_text.h"

namespace tlt::chat_template {

JinjaExpressionPtr JinjaExpressionParser::parse_call(JinjaExpressionPtr callee) {
  const int line = token().line;
  if (callee->op == Op::kAttribute)
    return apply("method", {.kind = Kind::kName, .line = line, .text = callee->name},
                 std::move(callee->parts[0]), parse_arguments());
  if (callee->op != Op::kName) fail_at(line, "only functions, macros and methods can be called");
  Arguments given = parse_arguments();
  called_.push_back({callee->name, line, given.positional.size(), !given.named.empty()});
  auto call = join(Op::kCall, line, "", std::move(callee));
  for (auto& argument : given.positional) add(*call, std::move(argument));
  for (auto& [name, argument] : given.named) deepen(*call, argument);
  call->keywords = std::move(given.named);
  return call;
}

void JinjaExpressionParser::check_calls() const {
  for (const Called& call : called_) {
    if (assigned_.contains(call.name)) continue;
    const JinjaFunction* function = try_jinja_function(call.name);
    if (function == nullptr) fail_unsupported(call.line, "function", call.name);
    if (call.positional > function->most_arguments)
      fail_at(call.line, fmt::format("{} takes at most {} arguments by position", call.name,
                                     function->most_arguments));
    if (call.has_named && !function->takes_names)
      fail_at(call.line, call.name + " takes no arguments by name; write them by position");
  }
}

JinjaExpressionParser::Arguments JinjaExpressionParser::parse_arguments() {
  Arguments given;
  std::set<std::string> names;
  expect_operator("(");
  parse_items(")", [&] {
    if (is_operator("*") || is_operator("**"))
      fail("arguments with * are not supported; write each argument");
    if (token().kind == Kind::kName && following().kind == Kind::kOperator &&
        following().text == "=") {
      const JinjaToken name = take();
      ++at_;
      if (!names.insert(name.text).second)
        fail_at(name.line, "the argument " + name.text + " is given twice");
      given.named.emplace_back(name.text, parse_expression());
    } else {
      if (!given.named.empty()) fail("a positional argument follows a named one");
      given.positional.push_back(parse_expression());
    }
  });
  return given;
}

JinjaExpressionPtr JinjaExpressionParser::parse_filters(JinjaExpressionPtr value) {
  while (true) {
    if (skip_operator("|")) {
      value = parse_filter(std::move(value));
    } else if (is_name("is")) {
      value = parse_test(std::move(value));
    } else if (is_operator("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

JinjaExpressionPtr JinjaExpressionParser::parse_filter(JinjaExpressionPtr value) {
  static const std::set<std::string> of_items = {"map",    "reject",     "rejectattr",
                                                 "select", "selectattr", "sort"};
  const JinjaToken name{.kind = Kind::kName, .line = token().line, .text = expect_name()};
  Arguments given = is_operator("(") ? parse_arguments() : Arguments{};
  return of_items.contains(name.text) ? apply_to_each(name, std::move(value), std::move(given))
                                      : apply("filter", name, std::move(value), std::move(given));
}

JinjaExpressionPtr JinjaExpressionParser::parse_test(JinjaExpressionPtr value) {
  const int line = take().line;
  const bool is_negated = skip_name("not");
  const JinjaToken name{.kind = Kind::kName, .line = line, .text = expect_name()};
  Arguments given;
  if (is_operator("(")) {
    given = parse_arguments();
  } else if (begins_test_argument()) {
    if (is_name("is")) fail("a test of a test needs parentheses");
    given.positional.push_back(parse_postfix(parse_primary()));
  }
  auto test = apply("test", name, std::move(value), std::move(given));
  return is_negated ? join(Op::kNot, line, "", std::move(test)) : std::move(test);
}

bool JinjaExpressionParser::begins_test_argument() const {
  switch (token().kind) {
    case Kind::kName:
      return !is_name("else") && !is_name("or") && !is_name("and");
    case Kind::kString:
    case Kind::kInteger:
    case Kind::kFloat:
      return true;
    default:
      return is_operator("[") || is_operator("{");
  }
}

JinjaExpressionPtr JinjaExpressionParser::apply(std::string_view kind, const JinjaToken& name,
                                                JinjaExpressionPtr input, Arguments given) const {
  auto call = join(Op::kBuiltin, name.line, "", std::move(input));
  call->builtin = kind == "filter" ? try_jinja_filter(name.text)
                  : kind == "test" ? try_jinja_test(name.text)
                                   : try_jinja_method(name.text);
  if (call->builtin == nullptr) fail_unsupported(name.line, kind, name.text);
  bind(*call, call->builtin->parameters, name.text, std::move(given));
  return call;
}

void JinjaExpressionParser::bind(JinjaExpression& call, std::string_view parameters,
                                 std::string_view name, Arguments given) const {
  std::vector<std::string_view> names;
  python::split(parameters, -1, [&](std::string_view one) { names.push_back(one); });
  if (given.positional.size() > names.size())
    fail_at(call.line, fmt::format("{} with more than {} arguments is not supported; write it "
                                   "without them (docs/chat_templates.md)",
                                   name, names.size()));
  for (auto& argument : given.positional) add(call, std::move(argument));
  const size_t first = call.parts.size() - given.positional.size();
  call.parts.resize(first + names.size());
  for (auto& [named, argument] : given.named) {
    const auto place = static_cast<size_t>(std::ranges::find(names, named) - names.begin());
    if (place == names.size())
      fail_unsupported(call.line, "argument", fmt::format("{} of {}", named, name));
    if (call.parts[first + place]) fail_at(call.line, "the argument " + named + " is given twice");
    deepen(call, argument);
    call.parts[first + place] = std::move(argument);
  }
}

JinjaExpressionPtr JinjaExpressionParser::apply_to_each(const JinjaToken& name,
                                                        JinjaExpressionPtr list,
                                                        Arguments given) const {
  if (name.text == "sort") return sorted(name, std::move(list), std::move(given));
  if (name.text == "map")
    return join(Op::kMap, name.line, "", std::move(list), mapped_item(name, std::move(given)));
  auto condition = item_condition(name, std::move(given));
  if (name.text.starts_with("reject"))
    condition = join(Op::kNot, name.line, "", std::move(condition));
  return join(Op::kSelect, name.line, "", std::move(list), std::move(condition));
}

JinjaExpressionPtr JinjaExpressionParser::mapped_item(const JinjaToken& name,
                                                      Arguments given) const {
  if (!given.positional.empty()) {
    const JinjaToken filter{
        .kind = Kind::kName, .line = name.line, .text = take_literal(name, given).text()};
    return apply("filter", filter, make(Op::kItem, name.line), std::move(given));
  }
  auto call = make(Op::kMap, name.line);
  bind(*call, "attribute default", "map", std::move(given));
  if (!call->parts[0]) fail_at(name.line, "map needs a filter or an attribute");
  auto value = item_attribute(name, *call->parts[0]);
  if (!call->parts[1]) return value;
  Arguments standard;
  standard.positional.push_back(std::move(call->parts[1]));
  return apply("filter", {.kind = Kind::kName, .line = name.line, .text = "default"},
               std::move(value), std::move(standard));
}

JinjaExpressionPtr JinjaExpressionParser::item_condition(const JinjaToken& name,
                                                         Arguments given) const {
  auto value = make(Op::kItem, name.line);
  if (name.text.ends_with("attr")) {
    const auto path = constant(name.line, take_literal(name, given));
    value = item_attribute(name, *path);
  }
  if (given.positional.empty()) return value;
  const JinjaToken test{
      .kind = Kind::kName, .line = name.line, .text = take_literal(name, given).text()};
  return apply("test", test, std::move(value), std::move(given));
}

JinjaExpressionPtr JinjaExpressionParser::sorted(const JinjaToken& name, JinjaExpressionPtr list,
                                                 Arguments given) const {
  auto call = make(Op::kSort, name.line);
  bind(*call, "reverse attribute", "sort", std::move(given));
  auto key = call->parts[1] ? item_attribute(name, *call->parts[1]) : make(Op::kItem, name.line);
  return join(Op::kSort, name.line, "", std::move(list), std::move(key), std::move(call->parts[0]));
}

JinjaValue JinjaExpressionParser::take_literal(const JinjaToken& name, Arguments& given) const {
  if (given.positional.empty() || given.positional[0]->op != Op::kConstant ||
      !given.positional[0]->constant.is_text())
    fail_at(name.line, name.text + " needs names in quotes");
  JinjaValue literal = given.positional[0]->constant;
  given.positional.erase(given.positional.begin());
  return literal;
}

// The attribute "a.0.b" of the item.
JinjaExpressionPtr JinjaExpressionParser::item_attribute(const JinjaToken& name,
                                                         const JinjaExpression& path) const {
  if (path.op != Op::kConstant || !(path.constant.is_text() || path.constant.try_integer()))
    fail_at(name.line, name.text + " needs an attribute in quotes");
  auto value = make(Op::kItem, name.line);
  if (!path.constant.is_text())
    return join(Op::kSubscript, name.line, "", std::move(value),
                constant(name.line, path.constant));
  python::split(path.constant.text(), ".", -1, [&](std::string_view part) {
    const bool is_index =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    const auto index = is_index ? python::try_integer(part) : std::nullopt;
    value = join(Op::kSubscript, name.line, "", std::move(value),
                 constant(name.line, index ? JinjaValue(*index) : JinjaValue(std::string(part))));
  });
  return value;
}

}  // namespace tlt::chat_template

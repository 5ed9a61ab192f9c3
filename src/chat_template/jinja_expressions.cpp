// SPDX-License-Identifier: Apache-2.0
#include "chat_template/jinja_expressions.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "chat_template/jinja_builtins.h"
#include "chat_template/jinja_text.h"

namespace tlt::chat_template {
namespace {

// The binary operators, from the weakest; those of a line are equally strong.
constexpr auto kOperators = std::to_array<std::string_view>({
    " or ",
    " and ",
    " == != < <= > >= in ",  // and not in
    " + - ",
    " ~ ",
    " * / // % ** ",
});
constexpr size_t kComparison = 2;

constexpr int32_t kMaxNesting = 60;  // of brackets and blocks; each takes several calls

// What to write in place of a construct of Jinja that is not supported.
constexpr auto kInstead = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"argument attribute of join", "map(attribute=…) before join"},
    {"argument case_sensitive of sort", "sort without it"},
    {"attribute loop.changed", "a comparison with loop.previtem"},
    {"attribute loop.cycle", "[…][loop.index0 % n]"},
    {"filter e", "replace('<', '&lt;')"},
    {"filter escape", "replace('<', '&lt;')"},
    {"filter format", "~ between the parts"},
    {"filter max", "a loop with a namespace"},
    {"filter min", "a loop with a namespace"},
    {"filter reverse", "[::-1]"},
    {"filter sum", "a loop with a namespace"},
    {"filter title", "x.title()"},
    {"function cycler", "[…][loop.index0 % n]"},
    {"function joiner", "if not loop.first"},
    {"method copy", "the value itself, which never changes"},
    {"method find", "\"a\" in text"},
    {"method format", "~ between the parts"},
    {"method removeprefix", "[n:] after if text.startswith(…)"},
    {"method removesuffix", "[:-n] after if text.endswith(…)"},
    {"method rsplit", "split(…)[-1]"},
    {"operator % after a string", "~ between the parts"},
    {"operator **", "a product"},
    {"statement block", "the text in the template itself"},
    {"statement call", "a macro with one more parameter"},
    {"statement extends", "the text in the template itself"},
    {"statement filter", "{% set x %}…{% endset %} and {{ x | … }}"},
    {"statement import", "the macros in the template itself"},
    {"statement include", "the text in the template itself"},
    {"statement print", "{{ … }}"},
    {"statement raw", "{{ \"{{\" }} for a brace"},
    {"statement with", "{% set %}"},
    {"test divisibleby", "x % n == 0"},
    {"test even", "x % 2 == 0"},
    {"test ge", "if x >= y in a loop"},
    {"test gt", "if x > y in a loop"},
    {"test le", "if x <= y in a loop"},
    {"test lt", "if x < y in a loop"},
    {"test odd", "x % 2 == 1"},
});

}  // namespace

JinjaExpressionParser::Nesting::Nesting(JinjaExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) parser_.fail("nested too deep");
}

void JinjaExpressionParser::fail_unsupported(int line, std::string_view kind,
                                             std::string_view name) const {
  const std::string what = fmt::format("{} {}", kind, name);
  const auto known = std::ranges::find(kInstead, what, [](const auto& one) { return one.first; });
  fail_at(line, fmt::format("the {} is not supported; write {} (docs/chat_templates.md)", what,
                            known == kInstead.end() ? "the line without it, in a file for "
                                                      "data.chat_template=FILE.jinja"
                                                    : known->second));
}

JinjaToken JinjaExpressionParser::take() {
  const JinjaToken& taken = token();
  if (taken.kind != Kind::kEnd) ++at_;
  return taken;
}

bool JinjaExpressionParser::skip_operator(std::string_view sign) {
  if (!is_operator(sign)) return false;
  ++at_;
  return true;
}

bool JinjaExpressionParser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  ++at_;
  return true;
}

void JinjaExpressionParser::expect_operator(std::string_view sign) {
  if (!skip_operator(sign)) fail(fmt::format("\"{}\" is expected{}", sign, found()));
}

void JinjaExpressionParser::expect(Kind kind, std::string_view what) {
  if (token().kind != kind) fail(fmt::format("{} is expected{}", what, found()));
  ++at_;
}

std::string JinjaExpressionParser::expect_name() {
  if (token().kind != Kind::kName) fail("a name is expected" + found());
  return take().text;
}

std::string JinjaExpressionParser::found() const {
  switch (token().kind) {
    case Kind::kEnd:
      return ", not the end of the template";
    case Kind::kBlockEnd:
      return ", not %}";
    case Kind::kVariableEnd:
      return ", not }}";
    case Kind::kText:
      return ", not text";
    default:
      return ", not \"" + token().text + "\"";
  }
}

JinjaExpressionPtr JinjaExpressionParser::make(Op op, int line, std::string name) const {
  auto made = std::make_unique<JinjaExpression>();
  made->op = op;
  made->line = line;
  made->name = std::move(name);
  return made;
}

JinjaExpressionPtr JinjaExpressionParser::constant(int line, JinjaValue value) const {
  auto made = make(Op::kConstant, line);
  made->constant = std::move(value);
  return made;
}

void JinjaExpressionParser::add(JinjaExpression& parent, JinjaExpressionPtr part) const {
  deepen(parent, part);
  parent.parts.push_back(std::move(part));
}

void JinjaExpressionParser::deepen(JinjaExpression& parent, const JinjaExpressionPtr& part) const {
  if (!part) return;
  parent.depth = std::max(parent.depth, part->depth + 1);
  if (parent.depth > kMaxJinjaDepth) fail_at(part->line, "an expression is nested too deep");
}

// --- operators, from the weakest to the strongest

JinjaExpressionPtr JinjaExpressionParser::parse_expression() {
  const Nesting nesting(*this);
  const int line = token().line;
  auto value = parse_condition();
  while (skip_name("if")) {
    auto condition = parse_condition();
    auto other = skip_name("else") ? parse_expression() : nullptr;
    value =
        join(Op::kConditional, line, "", std::move(value), std::move(condition), std::move(other));
  }
  return value;
}

JinjaExpressionPtr JinjaExpressionParser::parse_binary(size_t strength) {
  if (strength == kOperators.size()) return parse_unary(/*with_filter=*/true);
  const int line = token().line;
  if (strength == kComparison && skip_name("not")) {
    const Nesting nesting(*this);
    return join(Op::kNot, line, "", parse_binary(strength));
  }
  auto left = parse_binary(strength + 1);
  bool is_first = true;
  for (std::string sign = take_operator(strength); !sign.empty(); sign = take_operator(strength)) {
    if (strength == kComparison && !std::exchange(is_first, false))
      fail_at(line, "a < b < c is not supported; write a < b and b < c");
    if (sign == "%" && left->op == Op::kConstant && left->constant.is_text())
      fail_unsupported(line, "operator", "% after a string");
    if (sign == "**" || sign == "/" || sign == "//") fail_unsupported(line, "operator", sign);
    left = join(Op::kBinary, line, sign, std::move(left), parse_binary(strength + 1));
  }
  return left;
}

std::string JinjaExpressionParser::take_operator(size_t strength) {
  if (strength == kComparison && is_name("not") && following().kind == Kind::kName &&
      following().text == "in") {
    at_ += 2;
    return "not in";
  }
  const bool is_known = (token().kind == Kind::kName || token().kind == Kind::kOperator) &&
                        kOperators[strength].find(" " + token().text + " ") != std::string::npos;
  return is_known ? take().text : "";
}

JinjaExpressionPtr JinjaExpressionParser::parse_unary(bool with_filter) {
  const int line = token().line;
  JinjaExpressionPtr made;
  if (skip_operator("-")) {
    const Nesting nesting(*this);
    made = join(Op::kNegative, line, "", parse_unary(/*with_filter=*/false));
  } else {
    made = parse_primary();
  }
  made = parse_postfix(std::move(made));
  return with_filter ? parse_filters(std::move(made)) : std::move(made);
}

// --- values

JinjaExpressionPtr JinjaExpressionParser::parse_primary() {
  const int line = token().line;
  if (token().kind == Kind::kName) return parse_name();
  if (token().kind == Kind::kInteger) return constant(line, JinjaValue(take().integer));
  if (token().kind == Kind::kFloat) return constant(line, JinjaValue(take().number));
  if (token().kind == Kind::kString) {
    std::string text;
    while (token().kind == Kind::kString) text += take().text;
    return constant(line, JinjaValue(std::move(text)));
  }
  JinjaExpressionPtr made;
  if (skip_operator("(")) {
    made = parse_tuple(/*may_be_empty=*/true);
    expect_operator(")");
  } else if (skip_operator("[")) {
    made = make(Op::kList, line);
    parse_items("]", [&] { add(*made, parse_expression()); });
  } else if (skip_operator("{")) {
    made = make(Op::kDictionary, line);
    parse_items("}", [&] {
      add(*made, parse_expression());
      expect_operator(":");
      add(*made, parse_expression());
    });
  } else {
    fail("a value is expected" + found());
  }
  return made;
}

void JinjaExpressionParser::parse_items(std::string_view close,
                                        const std::function<void()>& parse_one) {
  for (bool is_first = true; !is_operator(close); is_first = false) {
    if (!is_first) {
      expect_operator(",");
      if (is_operator(close)) break;
    }
    parse_one();
  }
  expect_operator(close);
}

JinjaExpressionPtr JinjaExpressionParser::parse_name() {
  static const std::set<std::string> unsupported = {"caller", "kwargs", "self", "super", "varargs"};
  static const std::set<std::string> of_loop = {"first",    "index",    "index0",
                                                "last",     "length",   "nextitem",
                                                "previtem", "revindex", "revindex0"};
  const JinjaToken token = take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return constant(token.line, JinjaValue(true));
  if (name == "false" || name == "False") return constant(token.line, JinjaValue(false));
  if (name == "none" || name == "None") return constant(token.line, JinjaValue::none());
  if (unsupported.contains(name)) fail_unsupported(token.line, "name", name);
  if (name != "loop" || !in_loop_) return make(Op::kName, token.line, name);
  if (!skip_operator(".")) fail_unsupported(token.line, "name", "loop without an attribute");
  const std::string attribute = expect_name();
  if (!of_loop.contains(attribute)) fail_unsupported(token.line, "attribute", "loop." + attribute);
  return make(Op::kLoop, token.line, attribute);
}

JinjaExpressionPtr JinjaExpressionParser::parse_tuple(bool may_be_empty, bool with_condition) {
  const int line = token().line;
  auto tuple = make(Op::kTuple, line);
  bool has_comma = false;
  while (token().kind != Kind::kVariableEnd && token().kind != Kind::kBlockEnd &&
         !is_operator(")")) {
    add(*tuple, with_condition ? parse_expression() : parse_condition());
    if (!skip_operator(",")) break;
    has_comma = true;
  }
  if (has_comma) return tuple;
  if (tuple->parts.size() == 1) return std::move(tuple->parts[0]);
  if (!may_be_empty) fail("a value is expected" + found());
  return tuple;
}

JinjaExpressionPtr JinjaExpressionParser::parse_postfix(JinjaExpressionPtr value) {
  while (true) {
    const int line = token().line;
    if (skip_operator(".")) {
      value = parse_attribute(std::move(value), line);
    } else if (skip_operator("[")) {
      value = parse_subscript(std::move(value), line);
    } else if (is_operator("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

JinjaExpressionPtr JinjaExpressionParser::parse_attribute(JinjaExpressionPtr value, int line) {
  if (token().kind != Kind::kInteger)
    return join(Op::kAttribute, line, expect_name(), std::move(value));
  return join(Op::kSubscript, line, "", std::move(value),
              constant(line, JinjaValue(take().integer)));
}

JinjaExpressionPtr JinjaExpressionParser::parse_subscript(JinjaExpressionPtr value, int line) {
  JinjaExpressionPtr begin, end, step;
  if (!is_operator(":")) begin = parse_expression();
  if (skip_operator("]")) return join(Op::kSubscript, line, "", std::move(value), std::move(begin));
  expect_operator(":");
  if (!is_operator(":") && !is_operator("]")) end = parse_expression();
  if (skip_operator(":") && !is_operator("]")) step = parse_expression();
  expect_operator("]");
  return join(Op::kSlice, line, "", std::move(value), std::move(begin), std::move(end),
              std::move(step));
}

}  // namespace tlt::chat_template

// SPDX-License-Identifier: Apache-2.0
#include "chat_template/jinja_parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <set>

#include "chat_template/jinja_builtins.h"
#include "chat_template/jinja_lexer.h"

namespace tlt::chat_template {
namespace {

using Kind = JinjaToken::Kind;
using Op = JinjaOperator;
using Tag = JinjaTag;

constexpr int32_t kMaxNesting = 60;  // of brackets and blocks; each takes several calls

class Parser {
 public:
  Parser(std::string_view source, const std::string& name)
      : name_(name), tokens_(jinja_tokens(source, name)) {}

  JinjaTree run() {
    JinjaTree tree;
    tree.body = parse_body({});
    if (token().kind != Kind::kEnd) fail("an end tag without a block: " + token().text);
    check_calls();
    tree.marks_generation = marks_generation_;
    return tree;
  }

 private:
  // Context of the parser: which constructs are allowed at this position.
  struct Surroundings {
    bool in_loop = false;             // `loop` is defined
    bool may_break = false;           // inside a loop
    bool in_output = true;            // output goes to the rendering itself, not into a value
    bool may_recurse = false;         // the innermost loop is recursive
    JinjaStatement* macro = nullptr;  // the innermost macro
    bool in_call_block = false;       // which has no caller, even inside a macro
  };

  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) parser_.fail("nested too deep");
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  [[noreturn]] void fail(const std::string& text) const { fail_at(token().line, text); }
  [[noreturn]] void fail_at(int line, const std::string& text) const {
    fail_template(name_, line, text);
  }

  const JinjaToken& token() const { return tokens_[at_]; }
  const JinjaToken& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  JinjaToken take() {
    const JinjaToken& taken = token();
    if (taken.kind != Kind::kEnd) ++at_;
    return taken;
  }

  bool is_operator(std::string_view sign) const {
    return token().kind == Kind::kOperator && token().text == sign;
  }
  bool is_name(std::string_view name) const {
    return token().kind == Kind::kName && token().text == name;
  }
  bool skip_operator(std::string_view sign) {
    if (!is_operator(sign)) return false;
    ++at_;
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    ++at_;
    return true;
  }
  void expect_operator(std::string_view sign) {
    if (!skip_operator(sign)) fail(fmt::format("\"{}\" is expected{}", sign, found()));
  }
  void expect(Kind kind, std::string_view what) {
    if (token().kind != kind) fail(fmt::format("{} is expected{}", what, found()));
    ++at_;
  }
  std::string expect_name() {
    if (token().kind != Kind::kName) fail("a name is expected" + found());
    return take().text;
  }
  std::string found() const {
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

  // --- expressions

  JinjaExpressionPtr make(Op op, int line, std::string name = {}) const {
    auto made = std::make_unique<JinjaExpression>();
    made->op = op;
    made->line = line;
    made->name = std::move(name);
    return made;
  }

  void add(JinjaExpression& parent, JinjaExpressionPtr part) const {
    deepen(parent, part);
    parent.parts.push_back(std::move(part));
  }

  void deepen(JinjaExpression& parent, const JinjaExpressionPtr& part) const {
    if (!part) return;
    parent.depth = std::max(parent.depth, part->depth + 1);
    if (parent.depth > kMaxJinjaDepth) fail_at(part->line, "an expression is nested too deep");
  }

  template <class... Parts>
  JinjaExpressionPtr join(Op op, int line, std::string name, Parts... parts) const {
    auto made = make(op, line, std::move(name));
    (add(*made, std::move(parts)), ...);
    return made;
  }

  JinjaExpressionPtr parse_expression() {
    const Nesting nesting(*this);
    const int line = token().line;
    auto value = parse_or();
    while (skip_name("if")) {
      auto condition = parse_or();
      auto other = skip_name("else") ? parse_expression() : nullptr;
      value = join(Op::kConditional, line, "", std::move(value), std::move(condition),
                   std::move(other));
    }
    return value;
  }

  JinjaExpressionPtr parse_or() {
    const int line = token().line;
    auto left = parse_and();
    while (skip_name("or")) left = join(Op::kOr, line, "", std::move(left), parse_and());
    return left;
  }

  JinjaExpressionPtr parse_and() {
    const int line = token().line;
    auto left = parse_not();
    while (skip_name("and")) left = join(Op::kAnd, line, "", std::move(left), parse_not());
    return left;
  }

  JinjaExpressionPtr parse_not() {
    if (!is_name("not")) return parse_compare();
    const Nesting nesting(*this);
    const int line = take().line;
    return join(Op::kNot, line, "", parse_not());
  }

  // Empty: no comparison follows.
  std::string take_comparison() {
    static constexpr auto kSigns =
        std::to_array<std::string_view>({"==", "!=", "<", "<=", ">", ">="});
    for (const std::string_view sign : kSigns)
      if (skip_operator(sign)) return std::string(sign);
    if (skip_name("in")) return "in";
    if (is_name("not") && following().kind == Kind::kName && following().text == "in") {
      at_ += 2;
      return "not in";
    }
    return {};
  }

  JinjaExpressionPtr parse_compare() {
    const int line = token().line;
    auto first = parse_sum();
    std::string sign = take_comparison();
    if (sign.empty()) return first;
    auto made = join(Op::kCompare, line, "", std::move(first));
    for (; !sign.empty(); sign = take_comparison()) {
      made->names.push_back(sign);
      add(*made, parse_sum());
    }
    return made;
  }

  JinjaExpressionPtr parse_sum() {
    const int line = token().line;
    auto left = parse_concatenation();
    while (is_operator("+") || is_operator("-")) {
      const std::string sign = take().text;
      left = join(Op::kArithmetic, line, sign, std::move(left), parse_concatenation());
    }
    return left;
  }

  JinjaExpressionPtr parse_concatenation() {
    const int line = token().line;
    auto first = parse_product();
    if (!is_operator("~")) return first;
    auto made = join(Op::kConcatenate, line, "", std::move(first));
    while (skip_operator("~")) add(*made, parse_product());
    return made;
  }

  JinjaExpressionPtr parse_product() {
    const int line = token().line;
    auto left = parse_power();
    while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
      const std::string sign = take().text;
      left = join(Op::kArithmetic, line, sign, std::move(left), parse_power());
    }
    return left;
  }

  JinjaExpressionPtr parse_power() {
    const int line = token().line;
    auto left = parse_unary(/*with_filter=*/true);
    while (skip_operator("**"))
      left = join(Op::kArithmetic, line, "**", std::move(left), parse_unary(/*with_filter=*/true));
    return left;
  }

  JinjaExpressionPtr parse_unary(bool with_filter) {
    const int line = token().line;
    JinjaExpressionPtr made;
    if (is_operator("-") || is_operator("+")) {
      const Nesting nesting(*this);
      const bool is_negative = take().text == "-";
      made = join(is_negative ? Op::kNegative : Op::kPositive, line, "",
                  parse_unary(/*with_filter=*/false));
    } else {
      made = parse_primary();
    }
    made = parse_postfix(std::move(made));
    return with_filter ? parse_filters(std::move(made)) : std::move(made);
  }

  JinjaExpressionPtr parse_primary() {
    const int line = token().line;
    if (token().kind == Kind::kName) return parse_name();
    auto made = make(Op::kConstant, line);
    if (token().kind == Kind::kString) {
      std::string text;
      while (token().kind == Kind::kString) text += take().text;
      made->constant = JinjaValue(std::move(text));
    } else if (token().kind == Kind::kInteger) {
      made->constant = JinjaValue(take().integer);
    } else if (token().kind == Kind::kFloat) {
      made->constant = JinjaValue(take().number);
    } else if (skip_operator("(")) {
      made = parse_tuple({}, /*may_be_empty=*/true);
      expect_operator(")");
    } else if (skip_operator("[")) {
      made = make(Op::kList, line);
      parse_items(*made, "]", [&] { add(*made, parse_expression()); });
    } else if (skip_operator("{")) {
      made = make(Op::kDictionary, line);
      parse_items(*made, "}", [&] {
        add(*made, parse_expression());
        expect_operator(":");
        add(*made, parse_expression());
      });
    } else {
      fail("a value is expected" + found());
    }
    return made;
  }

  template <class ParseOne>
  void parse_items(JinjaExpression&, std::string_view close, const ParseOne& parse_one) {
    for (bool is_first = true; !is_operator(close); is_first = false) {
      if (!is_first) {
        expect_operator(",");
        if (is_operator(close)) break;
      }
      parse_one();
    }
    expect_operator(close);
  }

  JinjaExpressionPtr parse_name() {
    const JinjaToken name = take();
    auto made = make(Op::kConstant, name.line);
    const std::string& text = name.text;
    if (text == "true" || text == "True" || text == "false" || text == "False") {
      made->constant = JinjaValue(text[0] == 't' || text[0] == 'T');
    } else if (text == "none" || text == "None") {
      made->constant = JinjaValue::none();
    } else if (text == "loop" && around_.in_loop) {
      return is_operator("(") ? parse_recursion(name.line) : parse_loop_attribute(name.line);
    } else {
      if (text == "varargs" || text == "kwargs" || text == "self" || text == "super")
        fail_at(name.line, "the name " + text + " is not supported");
      if (text == "caller") note_caller(name.line);
      made = make(Op::kName, name.line, text);
    }
    return made;
  }

  // Records that a call block may call the macro.
  void note_caller(int line) {
    if (around_.macro == nullptr || around_.in_call_block)
      fail_at(line, "the name caller is not supported here");
    around_.macro->uses_caller = true;
    assigned_.insert("caller");
  }

  JinjaExpressionPtr parse_recursion(int line) const {
    if (!around_.may_recurse) fail_at(line, "loop(…) needs {% for … recursive %}");
    return make(Op::kLoop, line);
  }

  JinjaExpressionPtr parse_loop_attribute(int line) {
    if (!skip_operator(".")) fail_at(line, "loop without an attribute is not supported");
    std::string name = expect_name();
    if (!is_loop_attribute(name)) fail_at(line, "loop." + name + " is not supported");
    if (name == "cycle" && !is_operator("(")) fail_at(line, "loop.cycle must be called");
    return make(Op::kLoop, line, std::move(name));
  }

  // Several values separated by commas become a tuple.
  JinjaExpressionPtr parse_tuple(std::string_view end_name, bool may_be_empty = false,
                                 bool with_condition = true) {
    const int line = token().line;
    auto tuple = make(Op::kTuple, line);
    bool has_comma = false;
    const auto is_end = [&] {
      return token().kind == Kind::kVariableEnd || token().kind == Kind::kBlockEnd ||
             is_operator(")") || (!end_name.empty() && is_name(end_name));
    };
    while (!is_end()) {
      add(*tuple, with_condition ? parse_expression() : parse_or());
      if (!skip_operator(",")) break;
      has_comma = true;
    }
    if (has_comma) return tuple;
    if (tuple->parts.size() == 1) return std::move(tuple->parts[0]);
    if (!may_be_empty) fail("a value is expected" + found());
    return tuple;
  }

  JinjaExpressionPtr parse_postfix(JinjaExpressionPtr value) {
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

  JinjaExpressionPtr parse_attribute(JinjaExpressionPtr value, int line) {
    if (token().kind == Kind::kInteger) {
      auto index = make(Op::kConstant, line);
      index->constant = JinjaValue(take().integer);
      return join(Op::kItem, line, "", std::move(value), std::move(index));
    }
    return join(Op::kAttribute, line, expect_name(), std::move(value));
  }

  JinjaExpressionPtr parse_subscript(JinjaExpressionPtr value, int line) {
    JinjaExpressionPtr begin, end, step;
    if (!is_operator(":")) begin = parse_expression();
    if (skip_operator("]")) return join(Op::kItem, line, "", std::move(value), std::move(begin));
    expect_operator(":");
    if (!is_operator(":") && !is_operator("]")) end = parse_expression();
    if (skip_operator(":") && !is_operator("]")) step = parse_expression();
    expect_operator("]");
    return join(Op::kSlice, line, "", std::move(value), std::move(begin), std::move(end),
                std::move(step));
  }

  JinjaExpressionPtr parse_call(JinjaExpressionPtr callee) {
    const int line = token().line;
    if (callee->op == Op::kName) {
      called_.emplace_back(callee->name, line);
    } else if (callee->op != Op::kAttribute && callee->op != Op::kLoop) {
      fail_at(line, "only functions, macros and methods can be called");
    }
    if (callee->op == Op::kAttribute && !is_jinja_method(callee->name))
      fail_at(line, "the method " + callee->name + " is not supported");
    const bool is_loop = callee->op == Op::kLoop;
    if (is_loop && !callee->name.empty() && callee->name != "cycle")
      fail_at(line, "loop." + callee->name + " is not a function");
    const bool is_recursion = is_loop && callee->name.empty();
    auto call = join(Op::kCall, line, "", std::move(callee));
    parse_arguments(*call);
    if (is_recursion && (call->parts.size() != 2 || !call->keywords.empty()))
      fail_at(line, "loop(…) takes the items of the inner loop");
    return call;
  }

  void parse_arguments(JinjaExpression& call) {
    const int line = token().line;
    expect_operator("(");
    parse_items(call, ")", [&] {
      if (is_operator("*") || is_operator("**")) fail("arguments with * are not supported");
      if (token().kind == Kind::kName && following().kind == Kind::kOperator &&
          following().text == "=") {
        std::string name = take().text;
        ++at_;
        auto value = parse_expression();
        deepen(call, value);
        call.keywords.emplace_back(std::move(name), std::move(value));
      } else {
        if (!call.keywords.empty()) fail_at(line, "a positional argument follows a named one");
        add(call, parse_expression());
      }
    });
  }

  JinjaExpressionPtr parse_filters(JinjaExpressionPtr value) {
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

  JinjaExpressionPtr parse_filter(JinjaExpressionPtr value) {
    const int line = token().line;
    const std::string name = expect_name();
    if (!is_jinja_filter(name)) fail_at(line, "the filter " + name + " is not supported");
    auto filter = make(Op::kFilter, line, name);
    add(*filter, std::move(value));
    if (is_operator("(")) parse_arguments(*filter);
    check_named_function(*filter);
    return filter;
  }

  // map("trim"), select("string"): names in arguments.
  void check_named_function(const JinjaExpression& filter) const {
    const bool is_attribute = filter.name == "selectattr" || filter.name == "rejectattr";
    const bool is_test = is_attribute || filter.name == "select" || filter.name == "reject";
    const size_t place = is_attribute ? 2 : 1;
    if ((!is_test && filter.name != "map") || filter.parts.size() <= place) return;
    const JinjaExpression& named = *filter.parts[place];
    if (named.op != Op::kConstant || !named.constant.is_text()) return;
    const std::string& name = named.constant.text();
    if (is_test ? !is_jinja_test(name) : !is_jinja_filter(name))
      fail_at(named.line,
              fmt::format("the {} {} is not supported", is_test ? "test" : "filter", name));
  }

  JinjaExpressionPtr parse_test(JinjaExpressionPtr value) {
    const int line = take().line;
    const bool is_negated = skip_name("not");
    const std::string name = expect_name();
    if (!is_jinja_test(name)) fail_at(line, "the test " + name + " is not supported");
    auto test = make(Op::kTest, line, name);
    add(*test, std::move(value));
    if (is_operator("(")) {
      parse_arguments(*test);
    } else if (begins_test_argument()) {
      if (is_name("is")) fail("a test of a test needs parentheses");
      add(*test, parse_postfix(parse_primary()));
    }
    return is_negated ? join(Op::kNot, line, "", std::move(test)) : std::move(test);
  }

  bool begins_test_argument() const {
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

  // --- statements

  std::unique_ptr<JinjaStatement> make_statement(Tag tag, int line) const {
    auto made = std::make_unique<JinjaStatement>();
    made->tag = tag;
    made->line = line;
    return made;
  }

  // Parses up to a tag of one of these names, which is not consumed; without names, to the end.
  JinjaBody parse_body(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    JinjaBody body;
    while (token().kind != Kind::kEnd) {
      const int line = token().line;
      if (token().kind == Kind::kText) {
        body.push_back(make_statement(Tag::kText, line));
        body.back()->text = take().text;
      } else if (token().kind == Kind::kVariableBegin) {
        ++at_;
        body.push_back(make_statement(Tag::kPrint, line));
        body.back()->expression = parse_tuple({});
        expect(Kind::kVariableEnd, "}}");
      } else {
        if (std::ranges::any_of(ends, [&](std::string_view end) {
              return following().kind == Kind::kName && following().text == end;
            }))
          return body;
        expect(Kind::kBlockBegin, "{%");
        if (auto made = parse_statement()) body.push_back(std::move(made));
        expect(Kind::kBlockEnd, "%}");
      }
    }
    if (ends.size() > 0)
      fail(fmt::format("the template ends where {{% {} %}} is expected", *(ends.end() - 1)));
    return body;
  }

  // The tag that ended a body; its %} is not consumed yet.
  std::string take_end() {
    expect(Kind::kBlockBegin, "{%");
    return expect_name();
  }

  JinjaBody parse_block(std::initializer_list<std::string_view> ends) {
    skip_operator(":");
    expect(Kind::kBlockEnd, "%}");
    return parse_body(ends);
  }

  std::unique_ptr<JinjaStatement> parse_statement() {
    const int line = token().line;
    const std::string tag = expect_name();
    if (tag == "set") return parse_set(line);
    if (tag == "if") return parse_if(line);
    if (tag == "for") return parse_for(line);
    if (tag == "macro") return parse_macro(line);
    if (tag == "call") return parse_call_block(line);
    if (tag == "with") return parse_with(line);
    if (tag == "filter") return parse_filter_block(line);
    if (tag == "generation") return parse_generation(line);
    if (tag == "print") {
      auto made = make_statement(Tag::kPrint, line);
      made->expression = parse_expression();
      return made;
    }
    if (tag == "break" || tag == "continue") {
      if (!around_.may_break) fail_at(line, tag + " is not supported here");
      return make_statement(tag == "break" ? Tag::kBreak : Tag::kContinue, line);
    }
    fail_at(line, "the tag " + tag + " is not supported here");
  }

  // A block with its own names.
  JinjaBody parse_inner(std::initializer_list<std::string_view> ends, bool keeps_output) {
    const Surroundings before = around_;
    around_.in_output &= keeps_output;
    around_.may_break &= keeps_output;
    JinjaBody body = parse_block(ends);
    around_ = before;
    return body;
  }

  void parse_targets(JinjaStatement& statement, bool with_fields) {
    const bool in_brackets = skip_operator("(");
    do {
      if (token().kind != Kind::kName || (statement.is_unpacked && is_name("in"))) break;
      const int line = token().line;
      JinjaTarget target{.name = take().text, .field = {}};
      if (with_fields && skip_operator(".")) target.field = expect_name();
      static const std::set<std::string> kReserved = {"true",  "false", "none", "True",
                                                      "False", "None",  "loop", "caller"};
      if (kReserved.contains(target.name)) fail_at(line, target.name + " cannot be set");
      if (target.field.starts_with('_')) fail_at(line, "a field of a namespace begins with _");
      assigned_.insert(target.name);
      statement.targets.push_back(std::move(target));
      if (!is_operator(",")) break;
      statement.is_unpacked = true;
    } while (skip_operator(","));
    if (in_brackets) expect_operator(")");
    if (statement.targets.empty()) fail("a name is expected" + found());
  }

  std::unique_ptr<JinjaStatement> parse_set(int line) {
    auto made = make_statement(Tag::kSet, line);
    parse_targets(*made, /*with_fields=*/true);
    if (skip_operator("=")) {
      made->expression = parse_tuple({});
      return made;
    }
    made->tag = Tag::kSetBlock;
    if (made->is_unpacked) fail_at(line, "a block is set to several names");
    if (is_operator("|")) made->expression = parse_filters(make(Op::kInput, line));
    made->body = parse_inner({"endset"}, /*keeps_output=*/false);
    take_end();
    return made;
  }

  std::unique_ptr<JinjaStatement> parse_if(int line) {
    auto made = make_statement(Tag::kIf, line);
    std::string tag = "if";
    while (tag != "endif") {
      JinjaBranch& branch = made->branches.emplace_back();
      if (tag != "else") branch.condition = parse_tuple({}, false, /*with_condition=*/false);
      branch.body = tag == "else" ? parse_block({"endif"}) : parse_block({"elif", "else", "endif"});
      tag = take_end();
    }
    return made;
  }

  std::unique_ptr<JinjaStatement> parse_for(int line) {
    auto made = make_statement(Tag::kFor, line);
    parse_targets(*made, /*with_fields=*/false);
    if (!skip_name("in")) fail("\"in\" is expected" + found());
    made->expression = parse_tuple("recursive", false, /*with_condition=*/false);
    const Surroundings before = around_;
    if (skip_name("if")) {
      around_.in_loop = false;  // not defined there
      made->condition = parse_expression();
    }
    around_ = before;
    made->is_recursive = skip_name("recursive");
    around_.in_output &= !made->is_recursive;
    around_.may_recurse = made->is_recursive;
    around_.in_loop = around_.may_break = true;
    made->body = parse_inner({"endfor", "else"}, /*keeps_output=*/true);
    around_ = before;
    around_.in_output &= !made->is_recursive;
    around_.may_break &= !made->is_recursive;
    const bool has_other = take_end() == "else";
    if (has_other) {
      made->other = parse_inner({"endfor"}, /*keeps_output=*/true);
      take_end();
    }
    around_ = before;
    return made;
  }

  void parse_parameters(JinjaStatement& statement) {
    expect_operator("(");
    while (!is_operator(")")) {
      if (!statement.parameters.empty()) expect_operator(",");
      const int line = token().line;
      std::string name = expect_name();
      if (name == "caller") fail_at(line, "a parameter cannot be named caller");
      assigned_.insert(name);
      auto standard = skip_operator("=") ? parse_expression() : nullptr;
      if (!standard && !statement.parameters.empty() && statement.parameters.back().second)
        fail("a parameter without a default follows one with a default");
      statement.parameters.emplace_back(std::move(name), std::move(standard));
    }
    expect_operator(")");
  }

  std::unique_ptr<JinjaStatement> parse_macro(int line) {
    auto made = make_statement(Tag::kMacro, line);
    made->text = expect_name();
    assigned_.insert(made->text);
    parse_parameters(*made);
    const Surroundings before = around_;
    around_.macro = made.get();
    around_.in_call_block = false;
    made->body = parse_inner({"endmacro"}, /*keeps_output=*/false);
    around_ = before;
    take_end();
    return made;
  }

  std::unique_ptr<JinjaStatement> parse_call_block(int line) {
    auto made = make_statement(Tag::kCallBlock, line);
    made->text = "caller";
    if (is_operator("(")) parse_parameters(*made);
    made->expression = parse_expression();
    if (made->expression->op != Op::kCall || made->expression->parts[0]->op != Op::kName)
      fail_at(line, "a call block needs the call of a macro");
    const Surroundings before = around_;
    around_.in_call_block = true;
    made->body = parse_inner({"endcall"}, /*keeps_output=*/false);
    around_ = before;
    take_end();
    return made;
  }

  std::unique_ptr<JinjaStatement> parse_with(int line) {
    auto made = make_statement(Tag::kWith, line);
    while (token().kind != Kind::kBlockEnd) {
      if (!made->targets.empty()) expect_operator(",");
      std::string name = expect_name();
      assigned_.insert(name);
      made->targets.push_back({.name = std::move(name), .field = {}});
      expect_operator("=");
      made->values.push_back(parse_expression());
    }
    made->body = parse_inner({"endwith"}, /*keeps_output=*/true);
    take_end();
    return made;
  }

  std::unique_ptr<JinjaStatement> parse_filter_block(int line) {
    auto made = make_statement(Tag::kFilterBlock, line);
    made->expression = parse_filter(make(Op::kInput, line));
    while (skip_operator("|")) made->expression = parse_filter(std::move(made->expression));
    made->body = parse_inner({"endfilter"}, /*keeps_output=*/false);
    take_end();
    return made;
  }

  std::unique_ptr<JinjaStatement> parse_generation(int line) {
    if (!around_.in_output)
      fail_at(line,
              "generation inside a macro, a set, a filter, a call or a recursive loop is not "
              "supported");
    marks_generation_ = true;
    auto made = make_statement(Tag::kGeneration, line);
    const Surroundings before = around_;
    around_.may_break = false;
    made->body = parse_inner({"endgeneration"}, /*keeps_output=*/true);
    around_ = before;
    take_end();
    return made;
  }

  // A called name must be a function, or a name that the template sets.
  void check_calls() const {
    for (const auto& [name, line] : called_)
      if (!is_jinja_function(name) && !assigned_.contains(name))
        fail_at(line, "the function " + name + " is not supported");
  }

  const std::string name_;
  const std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  int32_t nesting_ = 0;
  Surroundings around_;
  bool marks_generation_ = false;
  std::vector<std::pair<std::string, int>> called_;
  std::set<std::string> assigned_;
};

}  // namespace

JinjaTree parse_jinja(std::string_view source, const std::string& name) {
  return Parser(source, name).run();
}

}  // namespace tlt::chat_template

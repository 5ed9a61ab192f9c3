// JinjaExpressionParser: parses the expressions of a template, and rejects what the renderer does
// not support, with the line and what to write instead. jinja_parser.cpp adds the statements.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat_template/jinja_lexer.h"
#include "chat_template/jinja_syntax.h"

namespace tlt::chat_template {

class JinjaExpressionParser {
 public:
  JinjaExpressionParser(std::string_view source, const std::string& name)
      : name_(name), tokens_(jinja_tokens(source, name)) {}

 protected:
  using Kind = JinjaToken::Kind;
  using Op = JinjaOperator;

  // Counts nested brackets and blocks.
  class Nesting {
   public:
    explicit Nesting(JinjaExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    JinjaExpressionParser& parser_;
  };

  [[noreturn]] void fail(const std::string& text) const { fail_at(token().line, text); }
  [[noreturn]] void fail_at(int line, const std::string& text) const {
    fail_template(name_, line, text);
  }
  // "the filter reverse is not supported; write …", for a kind like "filter".
  [[noreturn]] void fail_unsupported(int line, std::string_view kind, std::string_view name) const;

  const JinjaToken& token() const { return tokens_[at_]; }
  const JinjaToken& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  JinjaToken take();
  bool is_operator(std::string_view sign) const {
    return token().kind == Kind::kOperator && token().text == sign;
  }
  bool is_name(std::string_view name) const {
    return token().kind == Kind::kName && token().text == name;
  }
  bool skip_operator(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view sign);
  void expect(Kind kind, std::string_view what);
  std::string expect_name();
  std::string found() const;  // ", not …": the current token

  JinjaExpressionPtr parse_expression();
  // Without `if`: the operand of `for … in`, whose `if` is its own.
  JinjaExpressionPtr parse_condition() { return parse_binary(0); }
  // Several values separated by commas become a tuple.
  JinjaExpressionPtr parse_tuple(bool may_be_empty = false, bool with_condition = true);

  // InputError: a called name is neither a function nor set by the template.
  void check_calls() const;

  bool in_loop_ = false;            // `loop` is defined
  std::set<std::string> assigned_;  // names that the template sets

 private:
  struct Arguments {
    std::vector<JinjaExpressionPtr> positional;
    std::vector<std::pair<std::string, JinjaExpressionPtr>> named;
  };

  JinjaExpressionPtr make(Op op, int line, std::string name = {}) const;
  JinjaExpressionPtr constant(int line, JinjaValue value) const;
  void add(JinjaExpression& parent, JinjaExpressionPtr part) const;
  void deepen(JinjaExpression& parent, const JinjaExpressionPtr& part) const;
  template <class... Parts>
  JinjaExpressionPtr join(Op op, int line, std::string name, Parts... parts) const {
    auto made = make(op, line, std::move(name));
    (add(*made, std::move(parts)), ...);
    return made;
  }

  JinjaExpressionPtr parse_binary(size_t strength);
  std::string take_operator(size_t strength);  // empty: none follows
  JinjaExpressionPtr parse_unary(bool with_filter);
  JinjaExpressionPtr parse_primary();
  JinjaExpressionPtr parse_name();
  void parse_items(std::string_view close, const std::function<void()>& parse_one);
  JinjaExpressionPtr parse_postfix(JinjaExpressionPtr value);
  JinjaExpressionPtr parse_attribute(JinjaExpressionPtr value, int line);
  JinjaExpressionPtr parse_subscript(JinjaExpressionPtr value, int line);
  JinjaExpressionPtr parse_call(JinjaExpressionPtr callee);
  Arguments parse_arguments();
  JinjaExpressionPtr parse_filters(JinjaExpressionPtr value);
  JinjaExpressionPtr parse_filter(JinjaExpressionPtr value);
  JinjaExpressionPtr parse_test(JinjaExpressionPtr value);
  bool begins_test_argument() const;

  // A filter, test or method with its arguments in the order of its parameters.
  JinjaExpressionPtr apply(std::string_view kind, const JinjaToken& name, JinjaExpressionPtr input,
                           Arguments given) const;
  void bind(JinjaExpression& call, std::string_view parameters, std::string_view name,
            Arguments given) const;
  // map, select, reject, selectattr, rejectattr and sort.
  JinjaExpressionPtr apply_to_each(const JinjaToken& name, JinjaExpressionPtr list,
                                   Arguments given) const;
  JinjaExpressionPtr mapped_item(const JinjaToken& name, Arguments given) const;
  JinjaExpressionPtr item_condition(const JinjaToken& name, Arguments given) const;
  JinjaExpressionPtr sorted(const JinjaToken& name, JinjaExpressionPtr list, Arguments given) const;
  // Removes the first positional argument, which must be a string in quotes.
  JinjaValue take_literal(const JinjaToken& name, Arguments& given) const;
  JinjaExpressionPtr item_attribute(const JinjaToken& name, const JinjaExpression& path) const;

  struct Called {
    std::string name;
    int line;
    size_t positional;
    bool has_named;
  };

  const std::string name_;
  const std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  int32_t nesting_ = 0;
  std::vector<Called> called_;
};

}  // namespace tlt::chat_template

// SPDX-License-Identifier: Apache-2.0
#include "chat_template/jinja_parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>

#include "chat_template/jinja_expressions.h"

namespace tlt::chat_template {
namespace {

using Tag = JinjaTag;
using Statement = std::unique_ptr<JinjaStatement>;

class Parser : JinjaExpressionParser {
 public:
  using JinjaExpressionParser::JinjaExpressionParser;

  JinjaTree run() {
    JinjaTree tree;
    tree.body = parse_body({});
    check_calls();
    tree.marks_generation = marks_generation_;
    return tree;
  }

 private:
  // Which statements are allowed at this position.
  struct Surroundings {
    bool may_break = false;  // inside a loop
    bool in_output = true;   // output goes to the rendering itself, not into a value
    bool is_top = true;      // names that are set here are those of the whole template
  };

  Statement make_statement(Tag tag, int line) const {
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
        take();
        body.push_back(make_statement(Tag::kPrint, line));
        body.back()->expression = parse_tuple();
        expect(Kind::kVariableEnd, "}}");
      } else {
        if (following().kind == Kind::kName &&
            std::ranges::find(ends, following().text) != ends.end())
          return body;
        expect(Kind::kBlockBegin, "{%");
        body.push_back(parse_statement());
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

  // A block with its own names.
  JinjaBody parse_inner(std::initializer_list<std::string_view> ends, const Surroundings& inside) {
    const Surroundings before = std::exchange(around_, inside);
    around_.is_top = false;
    JinjaBody body = parse_block(ends);
    around_ = before;
    return body;
  }

  // A block whose output is a value.
  JinjaBody parse_captured(std::string_view end) {
    JinjaBody body = parse_inner({end}, {.in_output = false});
    take_end();
    return body;
  }

  Statement parse_statement() {
    const int line = token().line;
    const std::string tag = expect_name();
    if (tag == "set") return parse_set(line);
    if (tag == "if") return parse_if(line);
    if (tag == "for") return parse_for(line);
    if (tag == "macro") return parse_macro(line);
    if (tag == "generation") return parse_generation(line);
    if (tag == "break" || tag == "continue") {
      if (!around_.may_break) fail_at(line, tag + " is only supported in a loop");
      return make_statement(tag == "break" ? Tag::kBreak : Tag::kContinue, line);
    }
    if (tag.starts_with("end") || tag == "else" || tag == "elif")
      fail_at(line, "the tag " + tag + " ends no block");
    fail_unsupported(line, "statement", tag);
  }

  void parse_targets(JinjaStatement& statement, bool with_fields) {
    const bool in_brackets = skip_operator("(");
    do {
      if (token().kind != Kind::kName || (statement.is_unpacked && is_name("in"))) break;
      statement.targets.push_back(parse_target(with_fields));
      if (!is_operator(",")) break;
      statement.is_unpacked = true;
    } while (skip_operator(","));
    if (in_brackets) expect_operator(")");
    if (statement.targets.empty()) fail("a name is expected" + found());
  }

  JinjaTarget parse_target(bool with_fields) {
    static const std::set<std::string> reserved = {"true",  "false", "none", "True",
                                                   "False", "None",  "loop", "caller"};
    const int line = token().line;
    JinjaTarget target{.name = take().text, .field = {}};
    if (with_fields && skip_operator(".")) target.field = expect_name();
    if (reserved.contains(target.name)) fail_at(line, target.name + " cannot be set");
    if (target.field.starts_with('_')) fail_at(line, "a field of a namespace begins with _");
    assigned_.insert(target.name);
    return target;
  }

  Statement parse_set(int line) {
    auto made = make_statement(Tag::kSet, line);
    parse_targets(*made, /*with_fields=*/true);
    if (skip_operator("=")) {
      made->expression = parse_tuple();
      return made;
    }
    made->tag = Tag::kSetBlock;
    if (made->is_unpacked) fail_at(line, "a block is set to several names");
    if (is_operator("|"))
      fail_at(line, "set with a filter is not supported; write the filter where the name is used");
    made->body = parse_captured("endset");
    return made;
  }

  Statement parse_if(int line) {
    auto made = make_statement(Tag::kIf, line);
    std::string tag = "if";
    while (tag != "endif") {
      JinjaBranch& branch = made->branches.emplace_back();
      if (tag != "else") branch.condition = parse_tuple(false, /*with_condition=*/false);
      branch.body = tag == "else" ? parse_block({"endif"}) : parse_block({"elif", "else", "endif"});
      tag = take_end();
    }
    return made;
  }

  Statement parse_for(int line) {
    auto made = make_statement(Tag::kFor, line);
    parse_targets(*made, /*with_fields=*/false);
    if (!skip_name("in")) fail("\"in\" is expected" + found());
    made->expression = parse_tuple(false, /*with_condition=*/false);
    const bool was_in_loop = in_loop_;
    if (skip_name("if")) {
      in_loop_ = false;  // not defined there
      made->condition = parse_expression();
    }
    if (is_name("recursive"))
      fail("a recursive loop is not supported; write a macro that calls itself");
    in_loop_ = true;
    made->body =
        parse_inner({"endfor", "else"}, {.may_break = true, .in_output = around_.in_output});
    in_loop_ = was_in_loop;
    if (take_end() == "else") {
      made->other = parse_inner({"endfor"}, around_);
      take_end();
    }
    return made;
  }

  Statement parse_macro(int line) {
    if (!around_.is_top)
      fail_at(line, "a macro inside a block is not supported; write it at the top level");
    auto made = make_statement(Tag::kMacro, line);
    made->text = expect_name();
    assigned_.insert(made->text);
    parse_parameters(*made);
    made->body = parse_captured("endmacro");
    return made;
  }

  void parse_parameters(JinjaStatement& macro) {
    expect_operator("(");
    while (!is_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      const int line = token().line;
      std::string name = expect_name();
      if (name == "caller") fail_unsupported(line, "name", name);
      assigned_.insert(name);
      auto standard = skip_operator("=") ? parse_expression() : nullptr;
      if (!standard && !macro.parameters.empty() && macro.parameters.back().second)
        fail("a parameter without a default follows one with a default");
      macro.parameters.emplace_back(std::move(name), std::move(standard));
    }
    expect_operator(")");
  }

  Statement parse_generation(int line) {
    if (!around_.in_output)
      fail_at(line,
              "generation inside a macro or a set is not supported; write it around the "
              "place where the text is printed");
    marks_generation_ = true;
    auto made = make_statement(Tag::kGeneration, line);
    made->body = parse_inner({"endgeneration"}, {});
    take_end();
    return made;
  }

  Surroundings around_;
  bool marks_generation_ = false;
};

}  // namespace

JinjaTree parse_jinja(std::string_view source, const std::string& name) {
  return Parser(source, name).run();
}

}  // namespace tlt::chat_template

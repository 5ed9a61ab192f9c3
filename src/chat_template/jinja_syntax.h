// The syntax tree of a Jinja template.
//
// Invariant  no part is nested deeper than kMaxJinjaDepth, so that traversing and freeing it can
//            recurse.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat_template/jinja_value.h"

namespace tlt::chat_template {

inline constexpr int32_t kMaxJinjaDepth = 150;

struct JinjaExpression;
using JinjaExpressionPtr = std::unique_ptr<JinjaExpression>;

enum class JinjaOperator {
  kConstant,
  kInput,  // of a filter around a block: the output of the block
  kName,
  kLoop,  // loop.NAME; without a name, and called: loop(children)
  kList,
  kTuple,
  kDictionary,  // parts: key, value, key, value …
  kAttribute,   // parts[0].NAME
  kItem,        // parts[0][parts[1]]
  kSlice,       // parts[0][parts[1] : parts[2] : parts[3]], each may be nullptr
  kCall,        // parts[0](parts[1] …, keywords)
  kFilter,      // parts[0] | NAME(parts[1] …, keywords)
  kTest,        // parts[0] is NAME(parts[1] …)
  kNot,
  kNegative,
  kPositive,
  kAnd,
  kOr,
  kConditional,  // parts[0] if parts[1] else parts[2], which may be nullptr
  kCompare,      // parts[0] names[0] parts[1] names[1] parts[2] …
  kConcatenate,  // parts[0] ~ parts[1] …
  kArithmetic,   // parts[0] NAME parts[1]
};

struct JinjaExpression {
  JinjaOperator op;
  int line = 0;
  int32_t depth = 1;
  std::string name;
  JinjaValue constant;
  std::vector<JinjaExpressionPtr> parts;
  std::vector<std::pair<std::string, JinjaExpressionPtr>> keywords;
  std::vector<std::string> names;
};

using JinjaBody = std::vector<std::unique_ptr<JinjaStatement>>;

enum class JinjaTag {
  kText,
  kPrint,
  kSet,          // targets = expression
  kSetBlock,     // targets = body, through the filter `expression` if given
  kIf,           // branches
  kFor,          // targets in expression if condition: body, else other
  kMacro,        // text(parameters): body
  kCallBlock,    // the call `expression` of a macro, whose caller(parameters) is body
  kWith,         // targets, one for each of `values`: body
  kFilterBlock,  // body through the filter `expression`
  kGeneration,   // body
  kBreak,
  kContinue,
};

// A name that is set, or a field of a namespace.
struct JinjaTarget {
  std::string name, field;
};

struct JinjaBranch {
  JinjaExpressionPtr condition;  // nullptr: else
  JinjaBody body;
};

struct JinjaStatement {
  JinjaTag tag;
  int line = 0;
  std::string text;
  JinjaExpressionPtr expression, condition;
  std::vector<JinjaTarget> targets;
  bool is_unpacked = false;   // several targets, or one with a comma
  bool is_recursive = false;  // a loop whose body may call it for other items
  bool uses_caller = false;   // a macro that a call block may call
  std::vector<JinjaExpressionPtr> values;
  std::vector<std::pair<std::string, JinjaExpressionPtr>> parameters;  // nullptr: no default
  std::vector<JinjaBranch> branches;
  JinjaBody body, other;
};

}  // namespace tlt::chat_template

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

struct JinjaBuiltin;
struct JinjaExpression;
using JinjaExpressionPtr = std::unique_ptr<JinjaExpression>;

enum class JinjaOperator {
  kConstant,
  kItem,  // the item that kMap, kSelect and kSort visit
  kName,
  kLoop,  // loop.NAME
  kList,
  kTuple,
  kDictionary,  // parts: key, value, key, value …
  kAttribute,   // parts[0].NAME
  kSubscript,   // parts[0][parts[1]]
  kSlice,       // parts[0][parts[1] : parts[2] : parts[3]], each may be nullptr
  kCall,        // parts[0](parts[1] …, keywords), of a function or macro
  kBuiltin,     // a filter, test or method of parts[0]; parts[1] …: its parameters, or nullptr
  kMap,         // parts[1] of each item of parts[0]
  kSelect,      // the items of parts[0] for which parts[1] is true
  kSort,        // the items of parts[0] by parts[1]; parts[2]: whether in reverse, or nullptr
  kNot,
  kNegative,
  kConditional,  // parts[0] if parts[1] else parts[2], which may be nullptr
  kBinary,       // parts[0] NAME parts[1]
};

struct JinjaExpression {
  JinjaOperator op;
  int line = 0;
  int32_t depth = 1;
  std::string name;
  JinjaValue constant;
  const JinjaBuiltin* builtin = nullptr;
  std::vector<JinjaExpressionPtr> parts;
  std::vector<std::pair<std::string, JinjaExpressionPtr>> keywords;
};

using JinjaBody = std::vector<std::unique_ptr<JinjaStatement>>;

enum class JinjaTag {
  kText,
  kPrint,
  kSet,         // targets = expression
  kSetBlock,    // targets = body
  kIf,          // branches
  kFor,         // targets in expression if condition: body, else other
  kMacro,       // text(parameters): body
  kGeneration,  // body
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
  bool is_unpacked = false;                                            // several targets
  std::vector<std::pair<std::string, JinjaExpressionPtr>> parameters;  // nullptr: no default
  std::vector<JinjaBranch> branches;
  JinjaBody body, other;
};

}  // namespace tlt::chat_template

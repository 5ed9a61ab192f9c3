// MathTree: a mathematical answer as a tree.
//
// The nodes are in one vector, children before parents, so that one pass over the vector evaluates
// the tree without recursion.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tlt::math_equal {

enum class NodeKind {
  // scalars
  kNumber,  // text 1234.5e6, repeat: the digits under a bar
  kBased,   // text 52, one child: the base
  kSymbol,  // text x, alpha, pi, infty; `e` and `i` are the constants
  kUnit,    // text cm
  kWord,    // text apples: an unknown unit, or an answer in words
  kSum,     // 2 children, as for product and quotient
  kProduct,
  kQuotient,
  kPower,
  kNegative,
  kPlusMinus,  // text pm or mp, 1 child
  kRoot,       // radicand, degree
  kFunction,   // text sin; argument and, for log, the base
  kFactorial,
  kBinomial,
  kMeasured,  // value, unit
  // all else
  kBracketed,  // text "(" + ")": a tuple or an interval, depending on the other answer
  kSet,
  kList,      // items separated by commas, without brackets
  kRegion,    // text cup, cap or setminus
  kMatrix,    // text 2x3, row by row
  kRelation,  // text "= <": one operator less than children
};

inline bool is_scalar(NodeKind kind) { return kind <= NodeKind::kMeasured; }

struct MathNode {
  NodeKind kind = NodeKind::kNumber;
  std::string text = {};
  std::string repeat = {};
  std::vector<int> children = {};
  bool has_plus_minus = false;  // in this node or below
  bool is_unit = false;         // only units: cm^2/s
};

struct MathTree {
  std::vector<MathNode> nodes;
  int root = 0;
  bool has_symbols = false;  // besides constants
};

}  // namespace tlt::math_equal

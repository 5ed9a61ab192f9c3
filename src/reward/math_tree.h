// MathTree: a mathematical answer as a tree.
//
// The nodes lie in one vector, children before parents, so that a pass over the vector evaluates
// the tree without recursion.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tlt::reward {

enum class NodeKind {
  // scalars
  kNumber,  // text 1234.5e6, repeat: the digits under a bar
  kBased,   // text 52, one child: the base
  kSymbol,  // text x, alpha, pi, infty; `e` and `i` are the constants
  kUnit,    // text cm
  kWord,    // text apples: a unit nobody knows, or an answer in words
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
  kBracketed,  // text "(" + ")": a tuple or an interval, by what it is compared with
  kSet,
  kList,      // items with commas between and no brackets around
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
  bool has_plus_minus = false;  // here or below
  bool is_unit = false;         // nothing but units: cm^2/s
};

struct MathTree {
  std::vector<MathNode> nodes;
  int root = 0;
  bool has_symbols = false;  // besides constants
};

}  // namespace tlt::reward

// MathTreeMaker: makes the nodes of a MathTree, children first.
//
// It has the rules that are not in the grammar: units move to the outside of a product, factors
// into a matrix, and scalars are made of scalars. For a kNoNode argument every function returns
// kNoNode, so the parser need not check after each call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "math_equal/math_tree.h"

namespace tlt::math_equal {

inline constexpr size_t kMaxMathNodes = 8192;
inline constexpr int kNoNode = -1;  // the parse has failed

class MathTreeMaker {
 public:
  int make(NodeKind kind, std::string text, std::vector<int> children = {});
  int number(std::string text, std::string repeat = {});
  int symbol(const std::string& name);

  // The sign moves inside a measure, -(5 cm) is (-5) cm, and into the cells of a matrix.
  int signed_by(NodeKind kind, const std::string& text, int node);
  int negative(int node) { return signed_by(NodeKind::kNegative, "", node); }

  int product(int left, int right);
  int quotient(int left, int right);
  int power(int base, int exponent);

  // Words: `miles per hour` becomes units, `apples` an unknown unit.
  int phrase(const std::string& text);

  // REQUIRES: node is not kNoNode.
  const MathNode& at(int node) const { return tree_.nodes[node]; }

  // Returns the tree; the maker is empty afterwards.
  MathTree take(int root);

 private:
  int with_unit(NodeKind kind, int left, int right);
  int scaled(int matrix, int scalar);

  MathTree tree_;
};

}  // namespace tlt::math_equal

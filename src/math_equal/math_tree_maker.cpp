// SPDX-License-Identifier: Apache-2.0
#include "math_equal/math_tree_maker.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "math_equal/math_units.h"

namespace tlt::math_equal {

namespace {

// A word without its plural: `apples` and `apple` are one unit.
std::string singular(std::string_view phrase) {
  std::string name;
  for (const char c : phrase) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  if (name.size() > 3 && name.ends_with('s')) name.pop_back();
  return name;
}

}  // namespace

int MathTreeMaker::make(NodeKind kind, std::string text, std::vector<int> children) {
  if (tree_.nodes.size() >= kMaxMathNodes || std::ranges::count(children, kNoNode) > 0) {
    return kNoNode;
  }
  MathNode node{.kind = kind, .text = std::move(text), .children = std::move(children)};
  node.has_plus_minus = kind == NodeKind::kPlusMinus;
  node.is_unit = kind == NodeKind::kUnit || kind == NodeKind::kWord;
  for (const int child : node.children) {
    node.has_plus_minus |= tree_.nodes[child].has_plus_minus;
    if (is_scalar(kind) && !is_scalar(tree_.nodes[child].kind)) return kNoNode;
  }
  tree_.nodes.push_back(std::move(node));
  return static_cast<int>(tree_.nodes.size()) - 1;
}

int MathTreeMaker::number(std::string text, std::string repeat) {
  const int node = make(NodeKind::kNumber, std::move(text));
  if (node != kNoNode) tree_.nodes[node].repeat = std::move(repeat);
  return node;
}

int MathTreeMaker::symbol(const std::string& name) {
  tree_.has_symbols |= name != "e" && name != "i" && name != "pi";
  return make(NodeKind::kSymbol, name);
}

int MathTreeMaker::signed_by(NodeKind kind, const std::string& text, int node) {
  if (node == kNoNode) return kNoNode;
  const MathNode copy = tree_.nodes[node];
  if (copy.kind == NodeKind::kMatrix) {
    std::vector<int> cells;
    for (const int cell : copy.children) cells.push_back(make(kind, text, {cell}));
    return make(NodeKind::kMatrix, copy.text, std::move(cells));
  }
  if (copy.kind != NodeKind::kMeasured) return make(kind, text, {node});
  return make(NodeKind::kMeasured, "", {make(kind, text, {copy.children[0]}), copy.children[1]});
}

int MathTreeMaker::product(int left, int right) {
  if (left == kNoNode || right == kNoNode) return kNoNode;
  if (at(right).kind == NodeKind::kMatrix) std::swap(left, right);
  if (at(left).kind == NodeKind::kMatrix) return scaled(left, right);
  return with_unit(NodeKind::kProduct, left, right);
}

int MathTreeMaker::quotient(int left, int right) {
  if (left == kNoNode || right == kNoNode) return kNoNode;
  return with_unit(NodeKind::kQuotient, left, right);
}

int MathTreeMaker::power(int base, int exponent) {
  const int node = make(NodeKind::kPower, "", {base, exponent});
  if (node != kNoNode) tree_.nodes[node].is_unit = at(base).is_unit;
  return node;
}

int MathTreeMaker::phrase(const std::string& text) {
  const auto factors = try_unit_phrase(text);
  if (!factors) return make(NodeKind::kWord, singular(text));
  int unit = kNoNode;
  for (const auto& [name, exponent] : *factors) {
    int factor = make(NodeKind::kUnit, name);
    if (exponent != 1) {
      const int size = number(std::to_string(std::abs(exponent)));
      factor = power(factor, exponent < 0 ? negative(size) : size);
    }
    unit = unit == kNoNode ? factor : product(unit, factor);
  }
  return unit;
}

MathTree MathTreeMaker::take(int root) {
  tree_.root = root;
  return std::move(tree_);
}

int MathTreeMaker::with_unit(NodeKind kind, int left, int right) {
  const bool left_is_unit = at(left).is_unit, right_is_unit = at(right).is_unit;
  if (!right_is_unit || left_is_unit) {
    const int node = make(kind, "", {left, right});
    if (node != kNoNode) tree_.nodes[node].is_unit = left_is_unit && right_is_unit;
    return node;
  }
  if (at(left).kind == NodeKind::kMeasured) {
    const std::vector<int> parts = at(left).children;
    return make(NodeKind::kMeasured, "", {parts[0], with_unit(kind, parts[1], right)});
  }
  if (kind == NodeKind::kQuotient) right = power(right, negative(number("1")));
  return make(NodeKind::kMeasured, "", {left, right});
}

int MathTreeMaker::scaled(int matrix, int scalar) {
  const MathNode copy = at(matrix);
  std::vector<int> cells;
  for (const int cell : copy.children) {
    if (!is_scalar(at(cell).kind)) return kNoNode;
    cells.push_back(make(NodeKind::kProduct, "", {scalar, cell}));
  }
  return make(NodeKind::kMatrix, copy.text, std::move(cells));
}

}  // namespace tlt::math_equal

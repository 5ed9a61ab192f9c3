// Parses a mathematical answer in LaTeX or plain text into a tree.
//
// Follows TeX where TeX is clear (`\frac43`, `\sqrt2x`) and the usual meaning where it is not
// (`x^10`, `\sin 2x`, `1\frac45`, `58,500`). Every token is read once and nesting is bounded, so
// time is linear and the stack small.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "math_equal/math_tree.h"

namespace tlt::math_equal {

inline constexpr size_t kMaxMathBytes = 4096;
inline constexpr int kMaxMathDepth = 200;  // nested calls; a pair of brackets is four

// nullopt: exceeds the bounds above, or is not in this grammar.
[[nodiscard]] std::optional<MathTree> try_parse_math(std::string_view text);

}  // namespace tlt::math_equal

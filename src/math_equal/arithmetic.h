// Arithmetic: exact evaluation of an expression that a model wrote.
//
// Numbers are fractions of 63 bits, without rounding or overflow. The input is untrusted: its size
// and depth are bounded, so time is linear and the stack small.
//
//   const auto expression = try_evaluate("8-(4/2)");
//   expression->value    // 6
//   expression->numbers  // 8, 4, 2 in order of appearance
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "math_equal/math_number.h"

namespace tlt::math_equal {

struct Expression {
  Rational value;
  std::vector<int64_t> numbers;
};

inline constexpr size_t kMaxExpressionBytes = 4096;
inline constexpr int kMaxExpressionDepth = 100;  // nested parentheses

// Evaluates `text`: integers, + - * /, signs, parentheses and blanks, with Python's precedence.
// nullopt: not such an expression (`9**9`, `7//2`, `1.5`, `07`, `2(3)`), a division by zero, an
// intermediate value of more than 63 bits, or larger or deeper than the bounds above.
[[nodiscard]] std::optional<Expression> try_evaluate(std::string_view text);

}  // namespace tlt::math_equal

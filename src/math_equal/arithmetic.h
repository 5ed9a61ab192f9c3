// Arithmetic: exact evaluation of an expression that a model wrote.
//
// Numbers are fractions of int64_t, without rounding or overflow. The input is untrusted: its size
// and depth are bounded, so time is linear and the stack small.
//
//   const auto expression = try_evaluate("8-(4/2)");
//   expression->value    // 6/1
//   expression->numbers  // 8, 4, 2 in order of appearance
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tlt::math_equal {

// In lowest terms, denominator > 0; both within +-(2^63 - 1).
struct Fraction {
  int64_t numerator = 0;
  int64_t denominator = 1;

  bool operator==(const Fraction&) const = default;
};

struct Expression {
  Fraction value;
  std::vector<int64_t> numbers;
};

inline constexpr size_t kMaxExpressionBytes = 4096;
inline constexpr int kMaxExpressionDepth = 100;  // nested parentheses

// Evaluates `text`: integers, + - * /, signs, parentheses and blanks, with Python's precedence.
// nullopt: not such an expression (`9**9`, `7//2`, `1.5`, `07`, `2(3)`), a division by zero, an
// intermediate value that does not fit a Fraction, or larger or deeper than the bounds above.
[[nodiscard]] std::optional<Expression> try_evaluate(std::string_view text);

}  // namespace tlt::math_equal

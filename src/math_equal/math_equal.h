// Compares two answers, in LaTeX or plain text, as mathematical objects.
//
// Rational numbers are equal if they are exactly, other numbers and formulas if they agree to many
// digits at random points (math_value.h); sets and lists if their items do in any order; tuples,
// matrices and intervals element by element; equations if one is a multiple of the other. As in
// school: `x = 5` is 5, `5 \text{ cm}`, `5\%` and `5^\circ` are 5 if the other answer has no unit,
// `52_8` is 52 but not 42. Text that cannot be parsed is compared as a string.
//
// Not equal  (2,3) and 2,3 and \{2,3\} and [2,3]; 0.33 and 1/3; answers that exceed the step
//            budget.
// Threading  no state.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "math_equal/math_value.h"

namespace tlt::math_equal {

struct MathJudgement {
  bool is_equal = false;
  bool is_read = false;  // both were parsed as mathematics, not compared as strings
  int64_t steps = 0;
};

MathJudgement judge_math(std::string_view a, std::string_view b, int64_t max_steps = kMaxMathSteps);

inline bool math_equal(std::string_view a, std::string_view b) { return judge_math(a, b).is_equal; }

}  // namespace tlt::math_equal

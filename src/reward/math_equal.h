// Are two answers the same mathematical object? Both as LaTeX or plain text.
//
// Numbers and formulas are equal if they agree exactly, or at random points modulo primes and over
// the complex numbers (math_value.h); sets and lists if their items do in any order; tuples,
// matrices and intervals place by place; equations if one is a multiple of the other. As in
// school: `x = 5` is 5, `5 \text{ cm}`, `5\%` and `5^\circ` are 5 where the other answer has no
// unit, `52_8` is 52 but not 42. What cannot be read is compared as text.
//
// Not equal  (2,3) and 2,3 and \{2,3\} and [2,3]; 0.33 and 1/3; answers that take more steps than
//            there are.
// Threading  no state.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "reward/math_value.h"

namespace tlt::reward {

struct MathJudgement {
  bool is_equal = false;
  bool is_read = false;  // both were mathematics, not just text
  int64_t steps = 0;
};

MathJudgement judge_math(std::string_view a, std::string_view b, int64_t max_steps = kMaxMathSteps);

inline bool math_equal(std::string_view a, std::string_view b) { return judge_math(a, b).is_equal; }

}  // namespace tlt::reward

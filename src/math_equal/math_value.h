// MathValue: the value of a scalar at one point, where every variable has a random value.
//
// A rational number is exact. Any other is a complex number with an error bound: of 512 bits at the
// first two points, where equal formulas must agree to all digits, and of 128 bits at the others,
// which are for the branches of roots and logarithms.
//
// Steps is the budget: every operation is charged, and operations beyond the budget are not
// computed, so that the time for an answer is bounded. Sizes are bounded before an operation.
//
//   Steps steps;
//   const auto values = evaluate(tree, /*point=*/0, /*plus_minus=*/1, steps);
//   compare(values[a], values[b])
//
// Threading  values of one thread (math_number.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "math_equal/math_number.h"
#include "math_equal/math_tree.h"

namespace tlt::math_equal {

// About 10 ns each. A pair of MATH-500 takes at most 2,500, a golden pair 29,100.
inline constexpr int64_t kMaxMathSteps = 100'000;

class Steps {
 public:
  explicit Steps(int64_t limit = kMaxMathSteps) : left_(limit), limit_(limit) {}

  // False, also for all later calls: the budget is exhausted.
  [[nodiscard]] bool take(int64_t steps) {
    left_ = steps > left_ ? 0 : left_ - steps;
    return left_ > 0;
  }
  bool is_spent() const { return left_ == 0; }
  int64_t taken() const { return limit_ - left_; }

 private:
  int64_t left_;
  const int64_t limit_;
};

// At most one of them; none: not a number, or too large.
struct MathValue {
  std::optional<Rational> exact = {};
  std::optional<Ball> ball = {};
  bool has_branches = false;  // computed by a function that may have branches

  bool is_known() const { return exact || ball; }
};

// The value of every node, in the tree's order; nodes that are not scalars have none. +- is
// `plus_minus`, -+ its opposite.
std::vector<MathValue> evaluate(const MathTree& tree, int point, int plus_minus, Steps& steps);

MathValue subtract(const MathValue& a, const MathValue& b, Steps& steps);
MathValue divide(const MathValue& a, const MathValue& b, Steps& steps);

// nullopt: not real, or not in the range of a double.
std::optional<double> try_real(const MathValue& a);

// Of the real part; 0 if it may be 0.
int sign_of(const MathValue& a);
bool may_be_zero(const MathValue& a);

enum class Verdict { kEqual, kDifferent, kUnknown };

// Exact if both are. Else equal if the balls meet and are small.
Verdict compare(const MathValue& a, const MathValue& b);

// A decimal may represent a number that is not a decimal: 0.333333333333 for 1/3, 3.14159265359 for
// pi. True if one is a decimal, the other is not, and they agree to a relative 1e-9.
bool is_decimal_of(const MathValue& a, const MathValue& b);

}  // namespace tlt::math_equal

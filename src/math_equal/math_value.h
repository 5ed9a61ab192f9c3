// MathValue: the value of a scalar at one point, where every variable has a random value.
//
// Three representations of one number, as far as available: an exact fraction of int64_t, residues
// modulo primes (exact for fractions of any size, their radicals, pi and variables), and a complex
// number in double precision with an error bound.
//
// Steps is the budget: every operation is charged, and operations beyond the budget are not
// computed, so that the time for an answer is bounded.
//
//   Steps steps;
//   const auto values = evaluate(tree, /*point=*/0, /*plus_minus=*/1, steps);
//   compare(values[a], values[b])
//
// Threading  values; no state.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "math_equal/arithmetic.h"
#include "math_equal/math_ball.h"
#include "math_equal/math_field.h"
#include "math_equal/math_tree.h"

namespace tlt::math_equal {

// About 10 ns each. A pair of MATH-500 takes at most 5,400, a golden pair 16,400.
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

struct MathValue {
  std::optional<Fraction> exact = {};
  std::optional<Residues> residues = {};
  MaybeBall ball = {};
  bool is_rational = false;  // known to be rational, whatever its size
};

// Residues are computed at the first points only: one is nearly always enough.
inline constexpr int kResiduePoints = 2;

// The value of every node, in the tree's order; nodes that are not scalars have none. +- is
// `plus_minus`, -+ its opposite.
std::vector<MathValue> evaluate(const MathTree& tree, int point, int plus_minus, Steps& steps);

MathValue subtract(const MathValue& a, const MathValue& b, Steps& steps);
MathValue divide(const MathValue& a, const MathValue& b, Steps& steps);

enum class Verdict { kEqual, kDifferent, kUnknown };

// Exact if both are known exactly; else compares the complex numbers, to a relative 1e-14 and their
// error bounds.
Verdict compare(const MathValue& a, const MathValue& b);

// A decimal may represent a number that is not a decimal: 0.333333333333 for 1/3, 3.14159265359 for
// pi. True if one is a decimal, the other is not, and they agree to a relative 1e-9.
bool is_decimal_of(const MathValue& a, const MathValue& b);

}  // namespace tlt::math_equal

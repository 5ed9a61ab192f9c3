// Ball: a complex number in double precision with an error bound.
//
// Every operation adds its own rounding to the errors of its arguments. Functions return nullopt if
// the value is not a finite number, or no digit of it is certain.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tlt::math_equal {

using Complex = std::complex<double>;

struct Ball {
  Complex mid = 0;
  double radius = 0;

  bool is_real() const { return mid.imag() == 0; }
  bool may_be_zero() const { return std::abs(mid) <= radius; }
};
using MaybeBall = std::optional<Ball>;

// A value that is exact except for rounding.
MaybeBall rounded(Complex value);

MaybeBall add(const Ball& a, const Ball& b);
MaybeBall subtract(const Ball& a, const Ball& b);
MaybeBall multiply(const Ball& a, const Ball& b);
MaybeBall divide(const Ball& a, const Ball& b);

MaybeBall power(Ball base, int64_t exponent);
MaybeBall power(const Ball& base, const Ball& exponent);  // principal branch

// sin … arccot, sinh …, exp, ln, abs, factorial (by the gamma function). nullopt: unknown name.
MaybeBall apply(std::string_view function, const Ball& argument);

}  // namespace tlt::math_equal

// SPDX-License-Identifier: Apache-2.0
#include "math_equal/math_ball.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

namespace tlt::math_equal {

namespace {

constexpr double kRounding = 4e-16;
constexpr double kLargestRadius = 1e-6;  // of max(1, |mid|): above, too few digits are left

MaybeBall ball(Complex mid, double radius) {
  radius += kRounding * std::abs(mid);
  const bool is_finite = std::isfinite(mid.real()) && std::isfinite(mid.imag());
  if (!is_finite || !(radius <= kLargestRadius * std::max(1.0, std::abs(mid)))) return std::nullopt;
  return Ball{mid, radius};
}

// Real values stay exactly real, so that branch cuts are approached from one side.
Complex real_or(const Ball& argument, Complex value) {
  return argument.is_real() ? Complex(value.real()) : value;
}

// On the branch cut of ln and of roots, rounding must not choose the side.
Complex on_the_cut(const Ball& argument) {
  const bool touches = std::abs(argument.mid.imag()) <= argument.radius;
  return touches ? Complex(argument.mid.real(), 0.0) : argument.mid;
}

MaybeBall logarithm(const Ball& a) {
  if (a.may_be_zero()) return std::nullopt;
  const Complex value = std::log(on_the_cut(a));
  return ball(value, 2 * a.radius / std::abs(a.mid) + kRounding);
}

MaybeBall exponential(const Ball& a) {
  const Complex value = std::exp(a.mid);
  return ball(value, 2 * a.radius * std::abs(value) + kRounding * std::abs(value));
}

// Lanczos' series (g = 7, nine terms), accurate to about 1e-14 right of 1/2.
Complex gamma(Complex z) {
  constexpr double kCoefficients[] = {
      0.99999999999980993,  676.5203681218851,     -1259.1392167224028,
      771.32342877765313,   -176.61502916214059,   12.507343278686905,
      -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7};
  if (z.real() < 0.5) {
    return std::numbers::pi / (std::sin(std::numbers::pi * z) * gamma(1.0 - z));
  }
  z -= 1.0;
  Complex sum = kCoefficients[0];
  for (int k = 1; k < 9; ++k) sum += kCoefficients[k] / (z + static_cast<double>(k));
  const Complex t = z + 7.5;
  return std::sqrt(2 * std::numbers::pi) * std::pow(t, z + 0.5) * std::exp(-t) * sum;
}

MaybeBall factorial(const Ball& a) {
  constexpr double kLargest = 170;
  if (std::abs(a.mid) > kLargest) return std::nullopt;
  const Complex value = real_or(a, gamma(a.mid + 1.0));
  constexpr double kSlope = 10;  // |digamma| there, away from the poles
  return ball(value, (1e-12 + kSlope * a.radius) * std::abs(value));
}

struct Function {
  Complex (*value)(Complex);
  Complex (*slope)(Complex);
};

using C = Complex;

// With value and derivative; other functions are composed of these.
const std::map<std::string_view, Function> kFunctions = {
    {"sin", {[](C z) { return std::sin(z); }, [](C z) { return std::cos(z); }}},
    {"cos", {[](C z) { return std::cos(z); }, [](C z) { return std::sin(z); }}},
    {"sinh", {[](C z) { return std::sinh(z); }, [](C z) { return std::cosh(z); }}},
    {"cosh", {[](C z) { return std::cosh(z); }, [](C z) { return std::sinh(z); }}},
    {"arcsin",
     {[](C z) { return std::asin(z); }, [](C z) { return 1.0 / std::sqrt(1.0 - z * z); }}},
    {"arccos",
     {[](C z) { return std::acos(z); }, [](C z) { return 1.0 / std::sqrt(1.0 - z * z); }}},
    {"arctan", {[](C z) { return std::atan(z); }, [](C z) { return 1.0 / (1.0 + z * z); }}}};

MaybeBall known(const Function& function, const Ball& a) {
  const Complex value = function.value(a.mid);
  const bool is_real = a.is_real() && value.imag() == 0;
  const double slope = std::abs(function.slope(a.mid));
  const double moved = a.radius == 0 ? 0 : 2 * slope * a.radius;
  return ball(is_real ? Complex(value.real()) : value, moved + kRounding + a.radius * a.radius);
}

MaybeBall quotient_of(std::string_view above, std::string_view below, const Ball& a) {
  const MaybeBall numerator = above.empty() ? Ball{1, 0} : apply(above, a);
  const MaybeBall denominator = apply(below, a);
  if (!numerator || !denominator) return std::nullopt;
  return divide(*numerator, *denominator);
}

}  // namespace

MaybeBall rounded(Complex value) { return ball(value, 0); }

MaybeBall add(const Ball& a, const Ball& b) { return ball(a.mid + b.mid, a.radius + b.radius); }

MaybeBall subtract(const Ball& a, const Ball& b) {
  return ball(a.mid - b.mid, a.radius + b.radius);
}

MaybeBall multiply(const Ball& a, const Ball& b) {
  const double radius =
      std::abs(a.mid) * b.radius + std::abs(b.mid) * a.radius + a.radius * b.radius;
  return ball(a.mid * b.mid, radius);
}

MaybeBall divide(const Ball& a, const Ball& b) {
  const double size = std::abs(b.mid);
  if (size <= 2 * b.radius) return std::nullopt;
  const Complex value = a.mid / b.mid;
  return ball(value, 2 * (a.radius + std::abs(value) * b.radius) / size);
}

MaybeBall power(Ball base, int64_t exponent) {
  MaybeBall result = Ball{1, 0};
  for (uint64_t left = static_cast<uint64_t>(std::abs(exponent)); left > 0; left >>= 1) {
    if (left & 1) result = multiply(*result, base);
    const MaybeBall square = left > 1 ? multiply(base, base) : base;
    if (!result || !square) return std::nullopt;
    base = *square;
  }
  return exponent < 0 ? divide({1, 0}, *result) : result;
}

MaybeBall power(const Ball& base, const Ball& exponent) {
  const MaybeBall log = logarithm(base);
  if (!log) return std::nullopt;
  const MaybeBall product = multiply(*log, exponent);
  MaybeBall result = product ? exponential(*product) : std::nullopt;
  if (result && base.is_real() && base.mid.real() > 0 && exponent.is_real()) {
    result->mid = result->mid.real();
  }
  return result;
}

MaybeBall apply(std::string_view name, const Ball& a) {
  if (const auto found = kFunctions.find(name); found != kFunctions.end()) {
    return known(found->second, a);
  }
  if (name == "tan") return quotient_of("sin", "cos", a);
  if (name == "cot") return quotient_of("cos", "sin", a);
  if (name == "sec") return quotient_of("", "cos", a);
  if (name == "csc") return quotient_of("", "sin", a);
  if (name == "tanh") return quotient_of("sinh", "cosh", a);
  if (name == "exp") return exponential(a);
  if (name == "ln") return logarithm(a);
  if (name == "abs") return ball(std::abs(a.mid), a.radius);
  if (name == "factorial") return factorial(a);
  if (!name.starts_with("arc")) return std::nullopt;
  const std::string_view inverse = name.substr(3);  // arcsec x = arccos(1/x) …
  const MaybeBall turned = divide({1, 0}, a);
  if (!turned) return std::nullopt;
  if (inverse == "sec") return apply("arccos", *turned);
  if (inverse == "csc") return apply("arcsin", *turned);
  return inverse == "cot" ? apply("arctan", *turned) : std::nullopt;
}

}  // namespace tlt::math_equal

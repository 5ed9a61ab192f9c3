// SPDX-License-Identifier: Apache-2.0
#include "math_equal/math_value.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <limits>
#include <map>
#include <numbers>
#include <string>
#include <utility>

#include "base/random.h"
#include "math_equal/math_units.h"

namespace tlt::math_equal {

namespace {

constexpr int64_t kBits = 512, kFewBits = 128;  // of a ball, at the first points and the others
constexpr int kPrecisePoints = 2;
constexpr int64_t kMaxExactBits = 1 << 17;          // 39,000 digits
constexpr int64_t kMaxBallBits = int64_t{1} << 40;  // of a ball's integer part, or zeros after 0.
constexpr int64_t kMaxArgumentBits = 32;            // of a function
constexpr int64_t kCertainBits = 30;                // fewer: too few digits are left
constexpr double kDecimalRelative = 1e-9;           // a decimal differs by less from its number
constexpr int64_t kExactSteps = 10;
constexpr int64_t kBallSteps = 10, kFunctionSteps = 100, kGammaSteps = 600;  // of kFewBits

bool is_whole(const Rational& a) { return fmpz_is_one(a.denominator()); }

std::optional<int64_t> try_whole(const MathValue& value, int64_t limit) {
  if (!value.exact || !is_whole(*value.exact)) return std::nullopt;
  const fmpz* whole = value.exact->numerator();
  if (fmpz_cmpabs(whole, Rational(limit).numerator()) > 0) return std::nullopt;
  return fmpz_get_si(whole);
}

MathValue from_whole(int64_t whole) { return {.exact = Rational(whole)}; }

int64_t bits_of(const Rational& a) { return static_cast<int64_t>(fmpq_height_bits(a)); }

bool is_zero(const MathValue& a) { return a.exact && fmpq_is_zero(*a.exact); }

// Its magnitude is below 2^size.
int64_t size_of(const Ball& a) {
  return std::max(arf_abs_bound_lt_2exp_si(arb_midref(a.real())),
                  arf_abs_bound_lt_2exp_si(arb_midref(a.imaginary())));
}

MathValue checked(Ball ball, bool has_branches) {
  const bool is_certain = acb_is_finite(ball) && acb_rel_one_accuracy_bits(ball) >= kCertainBits &&
                          (acb_contains_zero(ball) || std::abs(size_of(ball)) <= kMaxBallBits);
  if (!is_certain) return {};
  return {.ball = std::move(ball), .has_branches = has_branches};
}

// REQUIRES: is_known().
Ball ball_of(const MathValue& value, int64_t bits = kBits) {
  if (value.ball) return *value.ball;
  Ball ball;
  acb_set_fmpq(ball, *value.exact, bits);
  return ball;
}

// On the branch cut of ln and of roots, rounding must not choose the side.
void put_on_the_cut(Ball& a) {
  if (arb_contains_zero(a.imaginary())) arb_zero(a.imaginary());
}

using BallFunction = void (*)(acb_ptr, acb_srcptr, slong);

template <BallFunction kFunction>  // arcsec x = arccos(1/x) …
void of_inverse(acb_ptr result, acb_srcptr a, slong bits) {
  acb_inv(result, a, bits);
  kFunction(result, result, bits);
}

const std::map<std::string_view, BallFunction> kFunctions = {{"sin", acb_sin},
                                                             {"cos", acb_cos},
                                                             {"tan", acb_tan},
                                                             {"cot", acb_cot},
                                                             {"sec", acb_sec},
                                                             {"csc", acb_csc},
                                                             {"sinh", acb_sinh},
                                                             {"cosh", acb_cosh},
                                                             {"tanh", acb_tanh},
                                                             {"exp", acb_exp},
                                                             {"ln", acb_log},
                                                             {"arcsin", acb_asin},
                                                             {"arccos", acb_acos},
                                                             {"arctan", acb_atan},
                                                             {"arcsec", of_inverse<acb_acos>},
                                                             {"arccsc", of_inverse<acb_asin>},
                                                             {"arccot", of_inverse<acb_atan>}};

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

class Evaluator {
 public:
  Evaluator(int point, int plus_minus, Steps& steps)
      : point_(point),
        plus_minus_(plus_minus),
        bits_(point < kPrecisePoints ? kBits : kFewBits),
        steps_(steps) {}

  MathValue value(const MathNode& node, const std::vector<MathValue>& values) {
    const auto child = [&](size_t i) -> const MathValue& { return values[node.children[i]]; };
    switch (node.kind) {
      case NodeKind::kNumber:
        return number(node);
      case NodeKind::kBased:
        return based(node.text, child(0));
      case NodeKind::kSymbol:
        return symbol(node.text);
      case NodeKind::kUnit:
        return unit(*find_unit(node.text));
      case NodeKind::kWord:
        return random_value("word " + node.text);
      case NodeKind::kSum:
        return apply(fmpq_add, acb_add, child(0), child(1));
      case NodeKind::kMeasured:
      case NodeKind::kProduct:
        return multiply(child(0), child(1));
      case NodeKind::kQuotient:
        return divide(child(0), child(1));
      case NodeKind::kPower:
        return power(child(0), child(1));
      case NodeKind::kNegative:
        return negative(child(0));
      case NodeKind::kPlusMinus:
        return multiply(from_whole(node.text == "pm" ? plus_minus_ : -plus_minus_), child(0));
      case NodeKind::kRoot:
        return root(child(0), child(1));
      case NodeKind::kFunction:
        return function(node.text, child(0), node.children.size() > 1 ? &child(1) : nullptr);
      case NodeKind::kFactorial:
        return factorial(child(0));
      case NodeKind::kBinomial:
        return binomial(child(0), child(1));
      default:
        return {};
    }
  }

  MathValue subtract(const MathValue& a, const MathValue& b) {
    return apply(fmpq_sub, acb_sub, a, b);
  }

  MathValue divide(const MathValue& a, const MathValue& b) {
    return is_zero(b) ? MathValue{} : apply(fmpq_div, acb_div, a, b);
  }

 private:
  using ExactOperation = void (*)(fmpq*, const fmpq*, const fmpq*);
  using BallOperation = void (*)(acb_ptr, acb_srcptr, acb_srcptr, slong);

  MathValue apply(ExactOperation exact, BallOperation of_balls, const MathValue& a,
                  const MathValue& b) {
    if (!a.is_known() || !b.is_known()) return {};
    if (a.exact && b.exact) {
      const int64_t bits_a = bits_of(*a.exact), bits_b = bits_of(*b.exact);
      const int64_t words_a = bits_a / 64, words_b = bits_b / 64;
      const bool is_reduced = exact == fmpq_div || !is_whole(*a.exact) || !is_whole(*b.exact);
      const int64_t work = words_a + words_b + words_a * words_b / 32;
      if (std::max(bits_a, bits_b) > kMaxExactBits ||
          !steps_.take(kExactSteps + (is_reduced ? 16 * work : work))) {
        return {};
      }
      MathValue result = from_whole(0);
      exact(*result.exact, *a.exact, *b.exact);
      return result;
    }
    if (!take(kBallSteps)) return {};
    Ball result;
    of_balls(result, ball_of(a, bits_), ball_of(b, bits_), bits_);
    return checked(std::move(result), a.has_branches || b.has_branches);
  }

  // Steps of a computation with balls.
  bool take(int64_t steps) { return steps_.take(steps * bits_ / kFewBits); }

  MathValue multiply(const MathValue& a, const MathValue& b) {
    return apply(fmpq_mul, acb_mul, a, b);
  }
  MathValue negative(const MathValue& a) { return subtract(from_whole(0), a); }

  // ---- numbers and symbols

  MathValue number(const MathNode& node) {
    const size_t exponent_at = std::min(node.text.find('e'), node.text.size());
    std::string digits = node.text.substr(0, exponent_at);
    const size_t point_at = std::min(digits.find('.'), digits.size());
    const bool has_point = point_at < digits.size();
    const auto decimals = static_cast<int64_t>(has_point ? digits.size() - point_at - 1 : 0);
    if (has_point) digits.erase(point_at, 1);
    MathValue value = times_ten_to(whole(digits), -decimals);
    if (!node.repeat.empty()) {  // 0.1(6) = 0.1 + 6 / (9 * 10)
      const MathValue nines = whole(std::string(node.repeat.size(), '9'));
      const MathValue repeated = times_ten_to(divide(whole(node.repeat), nines), -decimals);
      value = apply(fmpq_add, acb_add, value, repeated);
    }
    if (exponent_at == node.text.size()) return value;
    return times_ten_to(value, std::atoi(node.text.c_str() + exponent_at + 1));
  }

  MathValue whole(const std::string& digits, int base = 10) {
    MathValue value = from_whole(0);
    if (!steps_.take(kExactSteps + std::ssize(digits))) return {};
    const bool is_read = fmpz_set_str(value.exact->numerator(), digits.c_str(), base) == 0;
    return is_read ? value : MathValue{};
  }

  MathValue times_ten_to(const MathValue& value, int64_t exponent) {
    return exponent == 0 ? value : multiply(value, whole_power(from_whole(10), exponent));
  }

  MathValue based(const std::string& digits, const MathValue& base_value) {
    const auto base = try_whole(base_value, 36);
    return base && *base >= 2 ? whole(digits, static_cast<int>(*base)) : MathValue{};
  }

  MathValue symbol(const std::string& name) {
    if (name == "i") return {.ball = Ball(0, 1)};
    if (name != "pi" && name != "e") return random_value(name);
    if (!take(kBallSteps)) return {};
    Ball constant;
    (name == "pi" ? arb_const_pi : arb_const_e)(constant.real(), bits_);
    return {.ball = constant};
  }

  // Of size between 1/2 and 2 and any argument, the same for the same name and point.
  MathValue random_value(std::string_view name) {
    if (!take(kBallSteps)) return {};
    const uint64_t key = hash_of(name);
    const RandomCounter counter{.prompt = static_cast<uint32_t>(point_)};
    const double size = 0.5 + 1.5 * uniform(key, counter);
    const auto value = std::polar(size, std::numbers::pi * (2 * uniform(key + 1, counter) - 1));
    return {.ball = Ball(value.real(), value.imag())};
  }

  MathValue unit(const Unit& unit) {
    MathValue value{.exact = Rational(unit.numerator, static_cast<uint64_t>(unit.denominator))};
    if (unit.times_pi) value = multiply(value, symbol("pi"));
    if (unit.dimension.empty()) return value;
    const MathValue dimension = random_value("unit " + std::string(unit.dimension));
    return multiply(value, whole_power(dimension, unit.power));
  }

  // ---- powers and roots

  MathValue whole_power(const MathValue& base, int64_t exponent) {
    if (!base.is_known() || (exponent < 0 && is_zero(base))) return {};
    if (base.exact) {
      const bool grows = !is_zero(base) && !fmpq_is_pm1(*base.exact);
      const int64_t bits = grows ? bits_of(*base.exact) * std::abs(exponent) : 0;
      if (bits > kMaxExactBits || !steps_.take(kExactSteps + bits / 8)) return {};
      MathValue result = from_whole(1);
      fmpq_pow_si(*result.exact, *base.exact, exponent);
      return result;
    }
    if (!take(kBallSteps * std::bit_width(static_cast<uint64_t>(std::abs(exponent))))) return {};
    Ball result;
    acb_pow_si(result, *base.ball, exponent, bits_);
    return checked(std::move(result), base.has_branches);
  }

  MathValue power(const MathValue& base, const MathValue& exponent) {
    constexpr int64_t kLargestExponent = 1'000'000'000;
    if (const auto whole = try_whole(exponent, kLargestExponent)) return whole_power(base, *whole);
    if (!base.is_known() || !exponent.is_known() || !take(kFunctionSteps)) return {};
    if (is_zero(base)) return sign_of(exponent) > 0 ? base : MathValue{};
    if (base.exact && exponent.exact) {
      const MathValue exact = exact_power(*base.exact, *exponent.exact);
      if (exact.exact) return exact;
    }
    Ball result = ball_of(base, bits_);
    const Ball power = ball_of(exponent, bits_);
    if (size_of(power) > kMaxArgumentBits) return {};
    put_on_the_cut(result);
    acb_pow(result, result, power, bits_);
    return checked(std::move(result), true);
  }

  // base^(n/d) where the base has an exact root of degree d.
  MathValue exact_power(const Rational& base, const Rational& exponent) {
    constexpr int64_t kLargestBits = 20;
    MathValue root = from_whole(1);
    if (fmpq_sgn(base) < 0 || bits_of(exponent) > kLargestBits) return {};
    if (!steps_.take(kExactSteps + bits_of(base) / 16)) return {};
    const slong degree = fmpz_get_si(exponent.denominator());
    const bool is_exact = fmpz_root(root.exact->numerator(), base.numerator(), degree) &&
                          fmpz_root(root.exact->denominator(), base.denominator(), degree);
    return is_exact ? whole_power(root, fmpz_get_si(exponent.numerator())) : MathValue{};
  }

  // The real root if there is one: the cube root of -8 is -2.
  MathValue root(const MathValue& radicand, const MathValue& degree) {
    const auto whole = try_whole(degree, 1'000'000);
    if (whole && *whole % 2 != 0 && is_negative(radicand)) {
      return negative(root(negative(radicand), degree));
    }
    return power(radicand, divide(from_whole(1), degree));
  }

  static bool is_negative(const MathValue& a) {
    return sign_of(a) < 0 && (a.exact || acb_is_real(*a.ball));
  }

  // ---- functions

  MathValue function(const std::string& name, const MathValue& argument, const MathValue* base) {
    if (!argument.is_known()) return {};
    if (name == "log" || name == "lg") {
      const MathValue ten = from_whole(10);
      return divide(function("ln", argument, nullptr),
                    function("ln", base != nullptr ? *base : ten, nullptr));
    }
    if (name == "abs") return absolute(argument);
    if (name == "floor" || name == "ceil") return whole_near(argument, name == "floor");
    const auto found = kFunctions.find(name);
    Ball ball = ball_of(argument, bits_);
    const bool is_logarithm = name == "ln";
    if (found == kFunctions.end() || !take(kFunctionSteps)) return {};
    if (!is_logarithm && size_of(ball) > kMaxArgumentBits) return {};
    if (is_logarithm) put_on_the_cut(ball);
    found->second(ball, ball, bits_);
    return checked(std::move(ball), true);
  }

  MathValue absolute(const MathValue& a) {
    if (sign_of(a) != 0 && (a.exact || acb_is_real(*a.ball))) {
      return sign_of(a) > 0 ? a : negative(a);
    }
    if (a.exact) return a;  // 0
    if (!a.is_known() || !take(kBallSteps)) return {};
    Ball result;
    acb_abs(result.real(), *a.ball, bits_);
    return checked(std::move(result), true);
  }

  MathValue whole_near(const MathValue& a, bool down) {
    MathValue result = from_whole(0);
    fmpz* whole = result.exact->numerator();
    if (a.exact) {
      (down ? fmpz_fdiv_q : fmpz_cdiv_q)(whole, a.exact->numerator(), a.exact->denominator());
      return result;
    }
    if (!acb_is_real(*a.ball) || size_of(*a.ball) > bits_ || !take(kBallSteps)) return {};
    Ball near;
    (down ? arb_floor : arb_ceil)(near.real(), a.ball->real(), bits_);
    return arb_get_unique_fmpz(whole, near.real()) ? result : MathValue{};
  }

  // By the gamma function if not of an integer.
  MathValue factorial(const MathValue& a) {
    constexpr int64_t kLargestSize = 8;
    if (const auto n = try_whole(a, kMaxExactBits)) {
      MathValue result = from_whole(0);
      if (*n < 0 || !take_product(*n, *n, 16)) return {};
      fmpz_fac_ui(result.exact->numerator(), *n);
      return result;
    }
    if (!a.ball || size_of(*a.ball) > kLargestSize || !take(kGammaSteps)) return {};
    Ball result;
    acb_add_si(result, *a.ball, 1, bits_);
    acb_gamma(result, result, bits_);
    return checked(std::move(result), true);
  }

  // For the product of n, n - 1, … of `count` factors.
  bool take_product(int64_t n, int64_t count, int64_t bits_per_step) {
    const int64_t bits = count * std::bit_width(static_cast<uint64_t>(n));
    return bits <= kMaxExactBits && steps_.take(kExactSteps + bits / bits_per_step);
  }

  MathValue binomial(const MathValue& above, const MathValue& below) {
    const auto n = try_whole(above, std::numeric_limits<int64_t>::max());
    const auto k = try_whole(below, std::numeric_limits<int64_t>::max());
    if (!n || !k || *n < 0) return {};
    if (*k < 0 || *k > *n) return from_whole(0);
    const int64_t count = std::min({*k, *n - *k, kMaxExactBits});
    if (!take_product(*n, count, 2)) return {};
    MathValue result = from_whole(0);
    fmpz_bin_uiui(result.exact->numerator(), *n, count);
    return result;
  }

  const int point_;
  const int plus_minus_;
  const int64_t bits_;
  Steps& steps_;
};

// Whether the denominator is a product of twos and fives.
bool is_decimal(const MathValue& a) {
  if (!a.exact) return false;
  Rational left = *a.exact;
  for (const fmpz factor : {2, 5}) fmpz_remove(left.denominator(), left.denominator(), &factor);
  return fmpz_is_one(left.denominator());
}

}  // namespace

std::vector<MathValue> evaluate(const MathTree& tree, int point, int plus_minus, Steps& steps) {
  std::vector<MathValue> values;
  values.reserve(tree.nodes.size());
  Evaluator evaluator(point, plus_minus, steps);
  for (const MathNode& node : tree.nodes) values.push_back(evaluator.value(node, values));
  return values;
}

MathValue subtract(const MathValue& a, const MathValue& b, Steps& steps) {
  return Evaluator(0, 1, steps).subtract(a, b);
}

MathValue divide(const MathValue& a, const MathValue& b, Steps& steps) {
  return Evaluator(0, 1, steps).divide(a, b);
}

std::optional<double> try_real(const MathValue& a) {
  if (!a.is_known()) return std::nullopt;
  const Ball ball = ball_of(a);
  const double value = arf_get_d(arb_midref(ball.real()), ARF_RND_NEAR);
  return acb_is_real(ball) && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

int sign_of(const MathValue& a) {
  if (a.exact) return fmpq_sgn(*a.exact);
  return a.ball ? arb_sgn_nonzero(a.ball->real()) : 0;
}

bool may_be_zero(const MathValue& a) {
  return is_zero(a) || (a.ball && acb_contains_zero(*a.ball));
}

Verdict compare(const MathValue& a, const MathValue& b) {
  if (!a.is_known() || !b.is_known()) return Verdict::kUnknown;
  if (a.exact && b.exact) {
    return *a.exact == *b.exact ? Verdict::kEqual : Verdict::kDifferent;
  }
  const Ball x = ball_of(a), y = ball_of(b);
  if (!acb_overlaps(x, y)) return Verdict::kDifferent;
  // Only known to be near 0: only exact zeros and cancelled sums are then equal to 0.
  const bool are_zero = may_be_zero(a) && may_be_zero(b);
  const auto certain_bits = are_zero ? acb_rel_one_accuracy_bits : acb_rel_accuracy_bits;
  const bool are_certain = certain_bits(x) >= kCertainBits && certain_bits(y) >= kCertainBits;
  return are_certain ? Verdict::kEqual : Verdict::kUnknown;
}

bool is_decimal_of(const MathValue& a, const MathValue& b) {
  if (is_decimal(a) == is_decimal(b) || !a.is_known() || !b.is_known()) return false;
  const Ball decimal = ball_of(is_decimal(a) ? a : b), number = ball_of(is_decimal(a) ? b : a);
  Ball off;  // number / decimal - 1
  acb_div(off, number, decimal, kBits);
  acb_sub_si(off, off, 1, kBits);
  acb_abs(off.real(), off, kBits);
  return arf_cmpabs_d(arb_midref(off.real()), kDecimalRelative) <= 0 &&
         acb_rel_one_accuracy_bits(off) >= kCertainBits;
}

}  // namespace tlt::math_equal

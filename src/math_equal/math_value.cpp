// SPDX-License-Identifier: Apache-2.0
#include "math_equal/math_value.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>
#include <string>

#include "base/random.h"
#include "math_equal/math_units.h"

namespace tlt::math_equal {

namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
constexpr int64_t kFractionSteps = 10, kResidueSteps = 4, kInverseSteps = 50, kBitSteps = 8;
constexpr int64_t kBallSteps = 5, kFunctionSteps = 40, kRootSteps = 700, kFactorSteps = 1500;
constexpr int64_t kExactDouble = 1'000'000'000'000'000;
constexpr double kRelative = 1e-14;        // two roundings of one number differ by less
constexpr double kDecimalRelative = 1e-9;  // a decimal differs by less from its number
constexpr double kNearZero = 1e-9;         // below, two values without certain digits are both 0

// __extension__: ISO C++ has no 128 bits.
__extension__ using Wide = __int128;

std::optional<Fraction> try_fraction(Wide numerator, Wide denominator) {
  if (denominator == 0) return std::nullopt;
  if (denominator < 0) numerator = -numerator, denominator = -denominator;
  Wide a = numerator < 0 ? -numerator : numerator, b = denominator;
  while (b != 0 && (a > kLargest || b > kLargest)) a = std::exchange(b, a % b);
  const Wide divisor =
      b == 0 ? a : Wide{std::gcd(static_cast<int64_t>(a), static_cast<int64_t>(b))};
  numerator /= divisor, denominator /= divisor;
  if (numerator > kLargest || numerator < -kLargest || denominator > kLargest) return std::nullopt;
  return Fraction{static_cast<int64_t>(numerator), static_cast<int64_t>(denominator)};
}

// `exact` as an integer, if within +-limit.
std::optional<int64_t> try_whole(const MathValue& value, int64_t limit) {
  if (!value.exact || value.exact->denominator != 1) return std::nullopt;
  const int64_t whole = value.exact->numerator;
  return std::abs(whole) <= limit ? std::optional(whole) : std::nullopt;
}

MathValue from_whole(int64_t whole) {
  return {.exact = Fraction{whole, 1},
          .residues = to_residues(whole),
          .ball = std::abs(whole) < kExactDouble ? Ball{static_cast<double>(whole), 0}
                                                 : rounded(static_cast<double>(whole)),
          .is_rational = true};
}

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

// A random value of size between 1/2 and 2 and any argument, the same for the same name and point.
MathValue random_value(std::string_view name, int point) {
  const uint64_t key = hash_of(name);
  const RandomCounter counter{.prompt = static_cast<uint32_t>(point)};
  const double size = 0.5 + 1.5 * uniform(key, counter);
  const double angle = std::numbers::pi * (2 * uniform(key + 1, counter) - 1);
  MathValue value{.ball = rounded(std::polar(size, angle))};
  if (point < kResiduePoints) value.residues = random_residues(key + static_cast<uint64_t>(point));
  return value;
}

class Evaluator {
 public:
  Evaluator(int point, int plus_minus, Steps& steps)
      : point_(point), plus_minus_(plus_minus), steps_(steps) {}

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
        return random_value("word " + node.text, point_);
      case NodeKind::kSum:
        return add(child(0), child(1));
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
        return (node.text == "pm") == (plus_minus_ > 0) ? child(0) : negative(child(0));
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

  MathValue add(const MathValue& a, const MathValue& b) {
    MathValue sum{.is_rational = a.is_rational && b.is_rational};
    if (!steps_.take(kFractionSteps + kResidueSteps + kBallSteps)) return sum;
    if (a.exact && b.exact) {
      const auto [n, d] = *a.exact;
      const auto [m, e] = *b.exact;
      Wide numerator = 0;
      if (!__builtin_add_overflow(Wide{n} * e, Wide{m} * d, &numerator)) {
        sum.exact = try_fraction(numerator, Wide{d} * e);
      }
    }
    if (a.residues && b.residues) sum.residues = *a.residues + *b.residues;
    if (a.ball && b.ball) sum.ball = math_equal::add(*a.ball, *b.ball);
    return sum;
  }

  MathValue multiply(const MathValue& a, const MathValue& b) {
    MathValue product{.is_rational = a.is_rational && b.is_rational};
    if (!steps_.take(kFractionSteps + kResidueSteps + kBallSteps)) return product;
    if (a.exact && b.exact) {
      product.exact = try_fraction(Wide{a.exact->numerator} * b.exact->numerator,
                                   Wide{a.exact->denominator} * b.exact->denominator);
    }
    if (a.residues && b.residues) product.residues = *a.residues * *b.residues;
    if (a.ball && b.ball) product.ball = math_equal::multiply(*a.ball, *b.ball);
    return product;
  }

  MathValue divide(const MathValue& a, const MathValue& b) {
    MathValue quotient{.is_rational = a.is_rational && b.is_rational};
    if (!steps_.take(kFractionSteps + kInverseSteps + kBallSteps)) return quotient;
    if (a.exact && b.exact) {
      quotient.exact = try_fraction(Wide{a.exact->numerator} * b.exact->denominator,
                                    Wide{a.exact->denominator} * b.exact->numerator);
      if (!quotient.exact && b.exact->numerator == 0) return {};
    }
    if (a.residues && b.residues) {
      const auto inverse = try_inverse(*b.residues);
      if (inverse) quotient.residues = *a.residues * *inverse;
    }
    if (a.ball && b.ball) quotient.ball = math_equal::divide(*a.ball, *b.ball);
    return quotient;
  }

  MathValue negative(const MathValue& a) { return multiply(from_whole(-1), a); }

 private:
  MathValue number(const MathNode& node) {
    const size_t exponent_at = std::min(node.text.find('e'), node.text.size());
    std::string digits = node.text.substr(0, exponent_at);
    const size_t point_at = std::min(digits.find('.'), digits.size());
    const bool has_point = point_at < digits.size();
    const auto decimals = static_cast<int64_t>(has_point ? digits.size() - point_at - 1 : 0);
    if (has_point) digits.erase(point_at, 1);
    MathValue value = times_ten_to(whole(digits), -decimals);
    if (!node.repeat.empty()) {  // 0.1(6) = 0.1 + 6 / (9 * 10)
      const auto size = static_cast<int64_t>(node.repeat.size());
      const MathValue nines = add(times_ten_to(from_whole(1), size), from_whole(-1));
      value = add(value, times_ten_to(divide(whole(node.repeat), nines), -decimals));
    }
    if (exponent_at == node.text.size()) return value;
    return times_ten_to(value, std::atoi(node.text.c_str() + exponent_at + 1));
  }

  MathValue whole(const std::string& digits) {
    constexpr size_t kPart = 18;  // digits of an int64_t
    MathValue value = from_whole(0);
    if (!steps_.take(kResidueSteps)) return value;
    for (size_t at = 0; at < digits.size(); at += kPart) {
      const std::string part = digits.substr(at, kPart);
      const MathValue added = from_whole(std::stoll(part));
      value = at == 0 ? added : add(times_ten_to(value, static_cast<int64_t>(part.size())), added);
    }
    return value;
  }

  MathValue times_ten_to(const MathValue& value, int64_t exponent) {
    return exponent == 0 ? value : multiply(value, whole_power(from_whole(10), exponent));
  }

  MathValue based(const std::string& digits, const MathValue& base_value) {
    const auto base = try_whole(base_value, 36);
    if (!base || *base < 2) return {};
    MathValue value = from_whole(0);
    for (const char digit : digits) {
      if (digit < '0' || digit - '0' >= *base) return {};
      value = add(multiply(value, base_value), from_whole(digit - '0'));
    }
    return value;
  }

  MathValue symbol(const std::string& name) {
    if (!steps_.take(kFunctionSteps)) return {};
    if (name == "i") return {.residues = imaginary_unit(), .ball = Ball{Complex(0, 1), 0}};
    MathValue value = random_value(name, point_);
    if (name == "pi") value.ball = rounded(std::numbers::pi);
    if (name == "e") value.ball = rounded(std::numbers::e);
    return value;
  }

  MathValue unit(const Unit& unit) {
    MathValue value = divide(from_whole(unit.numerator), from_whole(unit.denominator));
    if (unit.times_pi) value = multiply(value, symbol("pi"));
    if (unit.dimension.empty()) return value;
    const MathValue dimension = random_value("unit " + std::string(unit.dimension), point_);
    return multiply(value, whole_power(dimension, unit.power));
  }

  // ---- powers and roots

  MathValue whole_power(const MathValue& base, int64_t exponent) {
    MathValue result{.is_rational = base.is_rational};
    const auto size = static_cast<uint64_t>(std::abs(exponent));
    if (!steps_.take(kInverseSteps + kBitSteps * std::bit_width(size))) return result;
    if (exponent == 0) return from_whole(1);
    if (exponent < 0 && base.exact && base.exact->numerator == 0) return {};
    result.exact = exact_power(base, exponent);
    if (base.residues) {
      const Residues up = math_equal::power(*base.residues, size);
      result.residues = exponent < 0 ? try_inverse(up) : up;
    }
    if (base.ball) result.ball = math_equal::power(*base.ball, exponent);
    return result;
  }

  static std::optional<Fraction> exact_power(const MathValue& base, int64_t exponent) {
    if (!base.exact) return std::nullopt;
    const auto [n, d] = exponent < 0 ? inverse(*base.exact) : *base.exact;
    if (std::abs(n) <= 1 && d == 1) return Fraction{exponent % 2 == 0 ? n * n : n, 1};
    constexpr int64_t kLongest = 63;  // doublings of 1
    if (std::abs(exponent) > kLongest) return std::nullopt;
    Fraction result = {1, 1};  // in lowest terms at every step
    for (int64_t k = std::abs(exponent); k > 0; --k) {
      if (__builtin_mul_overflow(result.numerator, n, &result.numerator) ||
          __builtin_mul_overflow(result.denominator, d, &result.denominator)) {
        return std::nullopt;
      }
    }
    return result;
  }
  // REQUIRES: not 0.
  static Fraction inverse(const Fraction& a) {
    return a.numerator < 0 ? Fraction{-a.denominator, -a.numerator}
                           : Fraction{a.denominator, a.numerator};
  }

  MathValue power(const MathValue& base, const MathValue& exponent) {
    constexpr int64_t kLargestExponent = 1'000'000'000;
    if (const auto whole = try_whole(exponent, kLargestExponent)) return whole_power(base, *whole);
    if (!steps_.take(kFunctionSteps)) return {};
    MathValue result;
    if (base.exact && exponent.exact) result = radical(*base.exact, *exponent.exact);
    const bool is_zero = base.exact && base.exact->numerator == 0;
    if (is_zero && exponent.ball && exponent.ball->mid.real() > 0) return from_whole(0);
    if (base.ball && exponent.ball) result.ball = math_equal::power(*base.ball, *exponent.ball);
    return result;
  }

  // base^(n/d) without its ball: the power of each prime of the base. A negative base has residues
  // only under a square root.
  MathValue radical(const Fraction& base, const Fraction& exponent) {
    constexpr int64_t kLargestExponent = 1'000'000;
    const int64_t degree = exponent.denominator;
    if (base.numerator == 0 || std::abs(exponent.numerator) > kLargestExponent) return {};
    if (base.numerator < 0 && degree != 2) return {};
    const auto above = root_of(std::abs(base.numerator), degree);
    const auto below = root_of(base.denominator, degree);
    if (!above || !below) return {};
    MathValue root = divide(*above, *below);
    if (base.numerator < 0) {
      root = multiply(root, {.residues = imaginary_unit(), .ball = Ball{Complex(0, 1), 0}});
    }
    return whole_power(root, exponent.numerator);
  }

  // The root of a positive integer as the product of the roots of its primes.
  std::optional<MathValue> root_of(int64_t number, int64_t degree) {
    MathValue product = from_whole(1);
    constexpr int64_t kLargestFactor = 1 << 12;
    if (!steps_.take(number < kLargestFactor ? kFunctionSteps : kFactorSteps)) return std::nullopt;
    for (int64_t q = 2; q <= kLargestFactor && q * q <= number; q += q == 2 ? 1 : 2) {
      int64_t count = 0;
      for (; number % q == 0; number /= q) ++count;
      if (count > 0 && !take_root(product, q, count, degree)) return std::nullopt;
    }
    // The rest is a prime, a square of one, or too large to factor.
    const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(number))));
    if (number > 1 && number < kLargest / 2 && side * side == number) {
      return take_root(product, side, 2, degree) && side < kLargestFactor * kLargestFactor
                 ? std::optional(product)
                 : std::nullopt;
    }
    if (number >= kLargestFactor * kLargestFactor) return std::nullopt;
    if (number > 1 && !take_root(product, number, 1, degree)) return std::nullopt;
    return product;
  }

  // product *= q^(count/degree)
  bool take_root(MathValue& product, int64_t q, int64_t count, int64_t degree) {
    const int64_t common = std::gcd(count, degree);
    MathValue factor = from_whole(q);
    if (degree != common) {
      if (!steps_.take(kRootSteps)) return false;
      const auto root = try_root(q, degree / common);
      if (!root) return false;
      factor = {.residues = root};
    }
    product = multiply(product, whole_power(factor, count / common));
    return true;
  }

  // The real root if there is one: the cube root of -8 is -2.
  MathValue root(const MathValue& radicand, const MathValue& degree) {
    const auto whole = try_whole(degree, 1'000'000);
    if (whole && *whole % 2 != 0 && is_negative(radicand)) {
      return negative(root(negative(radicand), degree));
    }
    return power(radicand, divide(from_whole(1), degree));
  }

  static bool is_negative(const MathValue& value) {
    if (value.exact) return value.exact->numerator < 0;
    return value.ball && value.ball->is_real() && value.ball->mid.real() < -value.ball->radius;
  }

  // ---- functions

  MathValue function(const std::string& name, const MathValue& argument, const MathValue* base) {
    if (!steps_.take(kFunctionSteps)) return {};
    if (name == "log" || name == "lg") {
      const MathValue ten = from_whole(10);
      return divide(by_ball("ln", argument), by_ball("ln", base != nullptr ? *base : ten));
    }
    if (name == "abs") return absolute(argument);
    if (name == "floor" || name == "ceil") return whole_near(argument, name == "floor");
    return by_ball(name, argument);
  }

  static MathValue by_ball(std::string_view name, const MathValue& argument) {
    return {.ball = argument.ball ? apply(name, *argument.ball) : std::nullopt};
  }

  MathValue absolute(const MathValue& a) {
    if (is_negative(a)) return negative(a);
    const bool is_positive =
        a.exact || (a.ball && a.ball->is_real() && a.ball->mid.real() > a.ball->radius);
    return is_positive ? a : by_ball("abs", a);
  }

  static MathValue whole_near(const MathValue& a, bool down) {
    if (a.exact) {
      const auto [n, d] = *a.exact;
      const int64_t quotient = n / d, rest = n % d;
      return from_whole(down ? quotient - (rest < 0 ? 1 : 0) : quotient + (rest > 0 ? 1 : 0));
    }
    if (!a.ball || !a.ball->is_real() ||
        std::abs(a.ball->mid.real()) > static_cast<double>(kExactDouble))
      return {};
    const double low = a.ball->mid.real() - a.ball->radius,
                 high = a.ball->mid.real() + a.ball->radius;
    const double whole = down ? std::floor(low) : std::ceil(low);
    if (whole != (down ? std::floor(high) : std::ceil(high))) return {};
    return from_whole(static_cast<int64_t>(whole));
  }

  MathValue factorial(const MathValue& a) {
    const auto n = try_whole(a, kMaxMathSteps);
    if (!n) return a.is_rational ? MathValue{} : by_ball("factorial", a);
    if (*n < 0) return {};
    return falling(*n, *n);
  }

  // n (n - 1) … of `count` factors.
  MathValue falling(int64_t n, int64_t count) {
    if (!steps_.take(count * kResidueSteps)) return {.is_rational = true};
    MathValue product = from_whole(1);
    for (int64_t k = 0; k < count; ++k) {
      const MathValue next = from_whole(n - k);
      if (product.exact) {
        product.exact = try_fraction(Wide{product.exact->numerator} * (n - k), 1);
      }
      product.residues = *product.residues * *next.residues;
      if (product.ball) product.ball = math_equal::multiply(*product.ball, *next.ball);
    }
    return product;
  }

  MathValue binomial(const MathValue& above, const MathValue& below) {
    const auto n = try_whole(above, kLargest - 1), k = try_whole(below, kMaxMathSteps);
    if (!n || !k || *n < 0) return {};
    if (*k < 0 || *k > *n) return from_whole(0);
    const int64_t count = std::min(*k, *n - *k);
    return divide(falling(*n, count), falling(count, count));
  }

  const int point_;
  const int plus_minus_;
  Steps& steps_;
};

double size_of(const MathValue& a, const MathValue& b) {
  return std::max(std::abs(a.ball->mid), std::abs(b.ball->mid));
}

bool is_zero(const MathValue& a) { return a.exact && a.exact->numerator == 0; }

// Whether the denominator is a product of twos and fives.
bool is_decimal(const Fraction& fraction) {
  int64_t left = fraction.denominator;
  for (const int64_t factor : {2, 5}) {
    while (left % factor == 0) left /= factor;
  }
  return left == 1;
}

bool is_no_decimal(const MathValue& a) { return a.exact ? !is_decimal(*a.exact) : !a.is_rational; }

}  // namespace

std::vector<MathValue> evaluate(const MathTree& tree, int point, int plus_minus, Steps& steps) {
  std::vector<MathValue> values;
  values.reserve(tree.nodes.size());
  Evaluator evaluator(point, plus_minus, steps);
  for (const MathNode& node : tree.nodes) values.push_back(evaluator.value(node, values));
  return values;
}

MathValue subtract(const MathValue& a, const MathValue& b, Steps& steps) {
  Evaluator evaluator(0, 1, steps);
  return evaluator.add(a, evaluator.negative(b));
}

MathValue divide(const MathValue& a, const MathValue& b, Steps& steps) {
  return Evaluator(0, 1, steps).divide(a, b);
}

Verdict compare(const MathValue& a, const MathValue& b) {
  const auto verdict = [](bool equal) { return equal ? Verdict::kEqual : Verdict::kDifferent; };
  if (a.exact && b.exact) return verdict(*a.exact == *b.exact);
  if (a.residues && b.residues) return verdict(*a.residues == *b.residues);
  if (!a.ball || !b.ball) return Verdict::kUnknown;
  const double off = a.ball->radius + b.ball->radius, size = size_of(a, b);
  const double apart = std::abs(a.ball->mid - b.ball->mid);
  if (apart > off + kRelative * size) return Verdict::kDifferent;
  if (off <= kDecimalRelative * size) return Verdict::kEqual;
  // Only known to be near 0: only exact zeros and cancelled sums are then equal to 0.
  const bool may_be_zero =
      (a.ball->may_be_zero() || is_zero(a)) && (b.ball->may_be_zero() || is_zero(b));
  return may_be_zero && off <= kNearZero ? Verdict::kEqual : Verdict::kUnknown;
}

bool is_decimal_of(const MathValue& a, const MathValue& b) {
  const bool apply = (a.exact && is_decimal(*a.exact) && is_no_decimal(b)) ||
                     (b.exact && is_decimal(*b.exact) && is_no_decimal(a));
  if (!apply || !a.ball || !b.ball) return false;
  return std::abs(a.ball->mid - b.ball->mid) <= kDecimalRelative * size_of(a, b) &&
         a.ball->radius + b.ball->radius <= kDecimalRelative * size_of(a, b);
}

}  // namespace tlt::math_equal

// SPDX-License-Identifier: Apache-2.0
#include "math_equal/arithmetic.h"

#include <limits>
#include <utility>

namespace tlt::math_equal {

namespace {

// Products of two int64_t and sums of two such products are exact in 128 bits.
__extension__ using Wide = __int128;

std::optional<Fraction> try_reduce(Wide numerator, Wide denominator) {
  if (denominator == 0) return std::nullopt;
  if (denominator < 0) numerator = -numerator, denominator = -denominator;
  Wide divisor = numerator < 0 ? -numerator : numerator, rest = denominator;
  while (rest != 0) {
    const Wide remainder = divisor % rest;
    divisor = rest;
    rest = remainder;
  }
  numerator /= divisor;
  denominator /= divisor;
  constexpr Wide kLimit = std::numeric_limits<int64_t>::max();
  if (numerator > kLimit || numerator < -kLimit || denominator > kLimit) return std::nullopt;
  return Fraction{static_cast<int64_t>(numerator), static_cast<int64_t>(denominator)};
}

std::optional<Fraction> try_apply(char operation, const Fraction& left, const Fraction& right) {
  const Wide a = left.numerator, b = left.denominator, c = right.numerator, d = right.denominator;
  switch (operation) {
    case '+':
      return try_reduce(a * d + c * b, b * d);
    case '-':
      return try_reduce(a * d - c * b, b * d);
    case '*':
      return try_reduce(a * c, b * d);
    default:
      return try_reduce(a * d, b * c);
  }
}

// Recursive descent; only parentheses recurse. Every method returns nullopt if the text is not an
// expression; the parser must not be used after that.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<Expression> try_parse() {
    const auto value = try_sum();
    if (!value || peek() != kEnd) return std::nullopt;
    return Expression{*value, std::move(numbers_)};
  }

 private:
  static constexpr char kEnd = '\0';

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : kEnd;
  }

  std::optional<Fraction> try_sum() {
    return try_chain('+', '-', [this] { return try_product(); });
  }

  std::optional<Fraction> try_product() {
    return try_chain('*', '/', [this] { return try_signed(); });
  }

  // Operands and operations of the same precedence, from left to right.
  template <class TryOperand>
  std::optional<Fraction> try_chain(char one, char other, const TryOperand& try_operand) {
    auto value = try_operand();
    while (value && (peek() == one || peek() == other)) {
      const char operation = text_[at_++];
      const auto right = try_operand();
      value = right ? try_apply(operation, *value, *right) : std::nullopt;
    }
    return value;
  }

  std::optional<Fraction> try_signed() {
    bool negative = false;
    for (; peek() == '+' || peek() == '-'; ++at_) negative ^= text_[at_] == '-';
    auto value = peek() == '(' ? try_parenthesis() : try_number();
    if (value && negative) value->numerator = -value->numerator;
    return value;
  }

  std::optional<Fraction> try_parenthesis() {
    if (++depth_ > kMaxExpressionDepth) return std::nullopt;
    ++at_;
    const auto value = try_sum();
    if (!value || peek() != ')') return std::nullopt;
    ++at_;
    --depth_;
    return value;
  }

  std::optional<Fraction> try_number() {
    const size_t begin = at_;
    int64_t number = 0;
    for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
      if (__builtin_mul_overflow(number, 10, &number) ||
          __builtin_add_overflow(number, text_[at_] - '0', &number)) {
        return std::nullopt;
      }
    }
    const size_t digits = at_ - begin;
    if (digits == 0 || (digits > 1 && text_[begin] == '0')) return std::nullopt;
    numbers_.push_back(number);
    return Fraction{number, 1};
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<int64_t> numbers_;
};

}  // namespace

std::optional<Expression> try_evaluate(std::string_view text) {
  // A NUL would look like the end of the text.
  if (text.size() > kMaxExpressionBytes || text.find('\0') != text.npos) return std::nullopt;
  return Parser(text).try_parse();
}

}  // namespace tlt::math_equal

// SPDX-License-Identifier: Apache-2.0
#include "math_equal/arithmetic.h"

#include <utility>

namespace tlt::math_equal {

namespace {

std::optional<Rational> try_apply(char operation, const Rational& left, const Rational& right) {
  constexpr flint_bitcnt_t kMaxBits = 63;
  if (operation == '/' && fmpq_is_zero(right)) return std::nullopt;
  const auto apply = operation == '+'   ? fmpq_add
                     : operation == '-' ? fmpq_sub
                     : operation == '*' ? fmpq_mul
                                        : fmpq_div;
  Rational result;
  apply(result, left, right);
  return fmpq_height_bits(result) <= kMaxBits ? std::optional(result) : std::nullopt;
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

  std::optional<Rational> try_sum() {
    return try_chain('+', '-', [this] { return try_product(); });
  }

  std::optional<Rational> try_product() {
    return try_chain('*', '/', [this] { return try_signed(); });
  }

  // Operands and operations of the same precedence, from left to right.
  template <class TryOperand>
  std::optional<Rational> try_chain(char one, char other, const TryOperand& try_operand) {
    auto value = try_operand();
    while (value && (peek() == one || peek() == other)) {
      const char operation = text_[at_++];
      const auto right = try_operand();
      value = right ? try_apply(operation, *value, *right) : std::nullopt;
    }
    return value;
  }

  std::optional<Rational> try_signed() {
    bool negative = false;
    for (; peek() == '+' || peek() == '-'; ++at_) negative ^= text_[at_] == '-';
    auto value = peek() == '(' ? try_parenthesis() : try_number();
    if (value && negative) fmpq_neg(*value, *value);
    return value;
  }

  std::optional<Rational> try_parenthesis() {
    if (++depth_ > kMaxExpressionDepth) return std::nullopt;
    ++at_;
    const auto value = try_sum();
    if (!value || peek() != ')') return std::nullopt;
    ++at_;
    --depth_;
    return value;
  }

  std::optional<Rational> try_number() {
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
    return Rational(number);
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

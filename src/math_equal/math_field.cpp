// SPDX-License-Identifier: Apache-2.0
#include "math_equal/math_field.h"

#include <utility>

#include "base/random.h"

namespace tlt::math_equal {

namespace {

struct Element {
  uint64_t re = 0;
  uint64_t im = 0;
};

// F_p(i) for one prime.
class Field {
 public:
  explicit constexpr Field(uint64_t p) : p_(p) {}

  Element multiply(Element a, Element b) const {  // products are below 2^62
    return {(a.re * b.re + p_ * p_ - a.im * b.im) % p_, (a.re * b.im + a.im * b.re) % p_};
  }

  Element power(Element base, uint64_t exponent) const {
    Element result{1, 0};
    for (; exponent > 0; exponent >>= 1) {
      if (exponent & 1) result = multiply(result, base);
      base = multiply(base, base);
    }
    return result;
  }

  // REQUIRES: 0 < a < p.
  uint64_t inverse(uint64_t a) const { return inverse_modulo(a, p_); }

  // A fourth root of a: its square is the square root used everywhere.
  Element fourth_root(uint64_t a) const {
    const bool is_square = power({a, 0}, (p_ - 1) / 2).re == 1;
    // The square root by this power is itself a square, so the power can be applied twice.
    const uint64_t up = (p_ + 1) / 4;
    const Element root = power(power({is_square ? a : p_ - a, 0}, up), up);
    return is_square ? root : multiply(root, eighth_root_of_one());
  }

  // An odd root of a number whose order divides 8 r, r = (p - 1) / 2.
  Element odd_root(Element a, uint64_t degree) const {
    const uint64_t order = 4 * (p_ - 1);
    return power(a, inverse_modulo(degree, order));
  }

 private:
  // (1 + i) / sqrt 2, whose square is i; 2 is a square because p is 7 mod 8.
  Element eighth_root_of_one() const {
    const uint64_t half_root = inverse(power({2, 0}, (p_ + 1) / 4).re);
    return {half_root, half_root};
  }

  // Extended Euclidean algorithm.
  static uint64_t inverse_modulo(uint64_t a, uint64_t modulus) {
    int64_t remainder = static_cast<int64_t>(modulus), next = static_cast<int64_t>(a % modulus);
    int64_t factor = 0, next_factor = 1;
    while (next != 0) {
      const int64_t quotient = remainder / next;
      remainder = std::exchange(next, remainder - quotient * next);
      factor = std::exchange(next_factor, factor - quotient * next_factor);
    }
    return static_cast<uint64_t>(factor < 0 ? factor + static_cast<int64_t>(modulus) : factor);
  }

  uint64_t p_;
};

template <class Make>
Residues for_each_prime(Make make) {
  Residues result;
  for (size_t k = 0; k < kPrimes.size(); ++k) {
    const Element element = make(k, Field(kPrimes[k]));
    result.re[k] = static_cast<uint32_t>(element.re);
    result.im[k] = static_cast<uint32_t>(element.im);
  }
  return result;
}

Element element(const Residues& a, size_t k) { return {a.re[k], a.im[k]}; }

}  // namespace

Residues to_residues(int64_t value) {
  return for_each_prime([&](size_t k, const Field&) {
    const int64_t p = kPrimes[k], rest = value % p;
    return Element{static_cast<uint64_t>(rest < 0 ? rest + p : rest), 0};
  });
}

Residues imaginary_unit() {
  return for_each_prime([](size_t, const Field&) { return Element{0, 1}; });
}

Residues operator+(const Residues& a, const Residues& b) {
  return for_each_prime([&](size_t k, const Field&) {
    const uint64_t p = kPrimes[k];
    return Element{(uint64_t{a.re[k]} + b.re[k]) % p, (uint64_t{a.im[k]} + b.im[k]) % p};
  });
}

Residues operator-(const Residues& a, const Residues& b) {
  return for_each_prime([&](size_t k, const Field&) {
    const uint64_t p = kPrimes[k];
    return Element{(p + a.re[k] - b.re[k]) % p, (p + a.im[k] - b.im[k]) % p};
  });
}

Residues operator*(const Residues& a, const Residues& b) {
  return for_each_prime(
      [&](size_t k, const Field& field) { return field.multiply(element(a, k), element(b, k)); });
}

std::optional<Residues> try_inverse(const Residues& a) {
  bool has_zero = false;
  const Residues result = for_each_prime([&](size_t k, const Field& field) {
    const uint64_t p = kPrimes[k];
    const auto [re, im] = element(a, k);
    const uint64_t norm = (re * re + im * im) % p;
    has_zero |= norm == 0;
    const uint64_t inverse = norm == 0 ? 0 : field.inverse(norm);
    return Element{re * inverse % p, (p - im) % p * inverse % p};
  });
  if (has_zero) return std::nullopt;
  return result;
}

Residues power(Residues base, uint64_t exponent) {
  return for_each_prime(
      [&](size_t k, const Field& field) { return field.power(element(base, k), exponent); });
}

std::optional<Residues> try_root(int64_t q, int64_t degree) {
  constexpr int64_t kLargestDegree = 1 << 20;
  if (degree % 8 == 0 || degree >= kLargestDegree) return std::nullopt;
  int64_t odd = degree, even = 1;
  for (; odd % 2 == 0; odd /= 2) even *= 2;
  return for_each_prime([&](size_t k, const Field& field) {
    const uint64_t residue = static_cast<uint64_t>(q % kPrimes[k]);
    if (residue == 0) return Element{};
    Element root = field.fourth_root(residue);
    for (int64_t n = even; n < 4; n *= 2) root = field.multiply(root, root);
    return odd == 1 ? root : field.odd_root(root, static_cast<uint64_t>(odd));
  });
}

Residues random_residues(uint64_t key) {
  const auto words = philox(key, {0, 0, 0, 1});
  return for_each_prime([&](size_t k, const Field&) { return Element{words[k] % kPrimes[k], 0}; });
}

}  // namespace tlt::math_equal

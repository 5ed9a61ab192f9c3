// Residues: numbers modulo several primes, in which sums, products, quotients and roots of integers
// are exact whatever their size.
//
// For each prime p the field is F_p(i), the integers modulo p with a square root of -1. Every p is
// 7 mod 8 and (p - 1) / 2 is prime, so integers have unique odd roots, and square and fourth roots
// can be chosen such that radicals keep their relations (sqrt 2 sqrt 3 = sqrt 6). Equal numbers
// have equal residues; different ones collide with probability about 2^-31 per prime.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace tlt::math_equal {

inline constexpr std::array<uint32_t, 4> kPrimes = {2147481143, 2147480927, 2147480327, 2147479823};

// re + im i, one per prime.
struct Residues {
  std::array<uint32_t, kPrimes.size()> re = {};
  std::array<uint32_t, kPrimes.size()> im = {};

  bool operator==(const Residues&) const = default;
};

Residues to_residues(int64_t value);
Residues imaginary_unit();

Residues operator+(const Residues& a, const Residues& b);
Residues operator-(const Residues& a, const Residues& b);
Residues operator*(const Residues& a, const Residues& b);

// nullopt: 0 modulo one of the primes.
[[nodiscard]] std::optional<Residues> try_inverse(const Residues& a);

Residues power(Residues base, uint64_t exponent);

// The root of a prime q, or of a number that shares no factor with any other number in use.
// REQUIRES: 0 < q < 2^63. nullopt: degree is divisible by 8, or not below 2^20.
[[nodiscard]] std::optional<Residues> try_root(int64_t q, int64_t degree);

// The pseudorandom residues of `key`.
Residues random_residues(uint64_t key);

}  // namespace tlt::math_equal

// SPDX-License-Identifier: Apache-2.0
#include "math_equal/math_field.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/random.h"

namespace tlt::math_equal {
namespace {

bool is_prime(uint64_t n) {
  for (uint64_t d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return n > 1;
}

TEST(ResiduesTest, PrimesHaveTheRequiredForm) {
  for (const uint64_t p : kPrimes) {
    EXPECT_TRUE(is_prime(p)) << p;
    EXPECT_TRUE(is_prime((p - 1) / 2)) << p;
    EXPECT_EQ(p % 8, 7U) << p;
    EXPECT_LT(p, uint64_t{1} << 31);
  }
}

TEST(ResiduesTest, FieldSatisfiesItsAxioms) {
  const Residues one = to_residues(1), i = imaginary_unit();
  EXPECT_EQ(i * i, to_residues(-1));
  RandomStream random(7, {});
  for (int round = 0; round < 200; ++round) {
    const Residues a = random_residues(random.below(1'000'000)) + i * random_residues(round);
    const Residues b = random_residues(random.below(1'000'000)) - i * random_residues(round + 1);
    EXPECT_EQ(a * b, b * a);
    EXPECT_EQ((a + b) * (a - b), a * a - b * b);
    const auto inverse = try_inverse(a);
    ASSERT_TRUE(inverse.has_value());
    EXPECT_EQ(a * *inverse, one);
    EXPECT_EQ(power(a, 5), a * a * a * a * a);
  }
  EXPECT_FALSE(try_inverse(to_residues(0)).has_value());
  EXPECT_FALSE(try_inverse(to_residues(kPrimes[2])).has_value());
}

TEST(ResiduesTest, RootsArePowersOfOneAnother) {
  for (const int64_t q : {2, 3, 5, 7, 11, 13, 101, 9973, 1000003}) {
    for (const int64_t degree : {2, 3, 4, 5, 6, 7, 12, 15, 20, 63, 1001}) {
      const auto root = try_root(q, degree);
      ASSERT_TRUE(root.has_value());
      EXPECT_EQ(power(*root, static_cast<uint64_t>(degree)), to_residues(q)) << q << " " << degree;
      for (const int64_t times : {2, 3, 5}) {
        const auto deeper = try_root(q, degree * times);
        if (!deeper) continue;
        EXPECT_EQ(power(*deeper, static_cast<uint64_t>(times)), *root) << q << " " << degree;
      }
    }
  }
  EXPECT_FALSE(try_root(2, 8).has_value());
}

}  // namespace
}  // namespace tlt::math_equal

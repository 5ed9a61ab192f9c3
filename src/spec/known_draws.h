// KnownDraws: the numbers that the target will choose a sequence's next tokens with. A token's
// number belongs to its place (random.h), so it is known before the token is, and who guesses the
// token may use it: where two tokens are about as likely, the number says which it will be.
//
// Target and drafter walk through the tokens in one order, and the target takes the first one at
// which its cumulative probability exceeds the number u. Where the drafter's has reached F, the
// target's is taken to be as far as logistic noise in its log-odds lets it be; so it has passed u
// with probability
//
//   G(F) = 1 / (1 + (u / (1 - u) * (1 - F) / F)^(1 / scale))
//
// and a token is the one that is drawn with the difference of G behind and before it. With exact
// probabilities the token whose share holds u is the one that is drawn; allowing for the drafter's
// error gives a little of that up. A head with rows for the most frequent tokens only, or for a
// vocabulary's padding, adds to that error. A guess that does not know the number is right as often
// as its likeliest token is drawn. Guesses by common random numbers: Daliri, Musco and Suresh,
// "Coupling without communication and drafter-invariant speculative decoding" (2024).
//
// No token changes: the target chooses with the same number whatever was guessed. Not for the
// target-only rule (ops/sampling.h), whose choice depends on the guesses.
//
// Threading  no state; any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "ops/sampling_rule.h"

namespace tlt::spec {

struct KnownDraws {
  std::span<const double> numbers = {};  // of the next tokens, in order; empty: not known
  ops::SamplingRule rule = {};

  bool empty() const { return numbers.empty(); }
  // Those behind so many tokens.
  KnownDraws behind(int64_t tokens) const {
    return {numbers.subspan(static_cast<size_t>(std::min(tokens, std::ssize(numbers)))), rule};
  }
};

// A token that may come next.
struct Considered {
  int32_t token = 0;
  double before = 0;  // the drafter's probability of all tokens before it in the target's order
  double probability = 0;  // its own, as the target truncates
  double untruncated = 0;
};

// Where a rule truncates, the target's order is that of falling probability: sets what is before
// each of the tokens, and their probabilities from the untruncated ones, as far as it can be told
// from these. REQUIRES: the likeliest tokens, in that order.
void truncate(const ops::SamplingRule& rule, std::span<Considered> likeliest);

// Makes the probabilities those of being drawn with this number, and sorts by them, the likeliest
// first.
void use_number(double number, std::span<Considered> considered);

}  // namespace tlt::spec

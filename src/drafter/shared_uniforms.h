// SharedUniforms: the uniforms that the target will sample a sequence's next tokens with (common
// random numbers). A token's uniform belongs to its position (base/random.h), so it is known before
// the token is sampled, and a drafter may use it: where two tokens are about equally likely, the
// uniform decides which one is sampled.
//
// Target and drafter order the tokens in the same way, and the target samples the first token at
// which its cumulative probability exceeds the uniform u. Where the drafter's cumulative
// probability has reached F, the target's is modelled as F with logistic noise in its log-odds; it
// has then passed u with probability
//
//   G(F) = 1 / (1 + (u / (1 - u) * (1 - F) / F)^(1 / scale))
//
// and a token is sampled with probability G(F after it) - G(F before it). With exact probabilities
// the token whose share contains u is the sampled one; allowing for the drafter's error gives a
// little of that up. An LM head that has rows for the most frequent tokens only, or for a
// vocabulary's padding, adds to that error. Without the uniform, a draft token is accepted as often
// as the drafter's most likely token is sampled. See Daliri, Musco and Suresh, "Coupling without
// communication and drafter-invariant speculative decoding" (2024).
//
// No token changes: the target samples with the same uniform whatever was drafted. Not for the
// target-only rule (ops/sampling.h), whose tokens depend on the draft tokens.
//
// Threading  no state; any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "ops/sampling_rule.h"

namespace tlt::drafter {

struct SharedUniforms {
  std::span<const double> numbers = {};  // uniforms of the next tokens; empty: not known
  ops::SamplingRule rule = {};

  bool empty() const { return numbers.empty(); }
  // The uniforms after the next `tokens` tokens.
  SharedUniforms after(int64_t tokens) const {
    return {numbers.subspan(static_cast<size_t>(std::min(tokens, std::ssize(numbers)))), rule};
  }
};

// A candidate for the next token.
struct Considered {
  int32_t token = 0;
  double before = 0;  // the drafter's probability of all tokens before it in the target's order
  double probability = 0;  // truncated by the target's sampling rule
  double untruncated = 0;
};

// A truncating rule orders tokens by falling probability: sets `before` of each token, and
// `probability` from `untruncated`, as far as these tokens determine it. REQUIRES: the most likely
// tokens, in that order.
void truncate(const ops::SamplingRule& rule, std::span<Considered> likeliest);

// Sets each probability to that of being sampled with this uniform, and sorts by it, the most
// likely first.
void use_uniform(double uniform, std::span<Considered> considered);

}  // namespace tlt::drafter

// SPDX-License-Identifier: Apache-2.0
#include "drafter/shared_uniforms.h"

#include <cmath>

namespace tlt::drafter {
namespace {

// A scale of 1/2 reduces G to squares, and of the scales from 0.25 to 1 it has the highest
// acceptance. Sometimes a drafter is entirely wrong, and then the uniform carries no information:
// shares from 0.2 to 0.4 differ by less than 1 % in acceptance length (both on the demo's model).
constexpr double kUnrelated = 0.3;

double passed(double reached, double uniform) {
  const double done = reached * (1 - uniform), left = std::max(0.0, 1 - reached) * uniform;
  return done > 0 ? done * done / (done * done + left * left) : 0;
}

}  // namespace

void truncate(const ops::SamplingRule& rule, std::span<Considered> likeliest) {
  const auto allowed = rule.top_k > 0 ? std::min(static_cast<size_t>(rule.top_k), likeliest.size())
                                      : likeliest.size();
  double all = 1;  // probability of what top-k leaves
  if (std::ssize(likeliest) >= rule.top_k && rule.top_k > 0) {
    all = 0;
    for (const Considered& one : likeliest.first(allowed)) all += one.untruncated;
  }
  double kept = 0;
  size_t count = 0;
  while (count < allowed && kept < rule.top_p * all &&
         likeliest[count].untruncated >= rule.min_p * likeliest[0].untruncated)
    kept += likeliest[count++].untruncated;
  // Without truncation among these tokens, the distribution continues after them.
  if (count == likeliest.size()) kept = std::max(kept, rule.top_p * all);
  double before = 0;
  for (size_t i = 0; i < likeliest.size(); ++i) {
    likeliest[i].before = before;
    likeliest[i].probability = i < count ? likeliest[i].untruncated / kept : 0;
    before += likeliest[i].probability;
  }
}

void use_uniform(double uniform, std::span<Considered> considered) {
  for (Considered& one : considered) {
    const double sampled =
        passed(one.before + one.probability, uniform) - passed(one.before, uniform);
    one.probability = (1 - kUnrelated) * sampled + kUnrelated * one.untruncated;
    if (std::isnan(one.probability)) one.probability = 0;  // a draft model with NaN weights
  }
  std::ranges::sort(considered, [](const Considered& a, const Considered& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
  });
}

}  // namespace tlt::drafter

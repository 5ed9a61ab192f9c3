// SPDX-License-Identifier: Apache-2.0
#include "spec/known_draws.h"

#include <cmath>

namespace tlt::spec {
namespace {

// A scale of 1/2 makes G a matter of squares, and of the scales from 0.25 to 1 it guesses best.
// Now and then a drafter is wrong altogether, and then the number says nothing: shares from 0.2 to
// 0.4 differ by less than one percent of the acceptance length (the demo's model, both).
constexpr double kUnrelated = 0.3;

double passed(double reached, double number) {
  const double done = reached * (1 - number), left = std::max(0.0, 1 - reached) * number;
  return done > 0 ? done * done / (done * done + left * left) : 0;
}

}  // namespace

void truncate(const ops::SamplingRule& rule, std::span<Considered> likeliest) {
  const auto allowed = rule.top_k > 0 ? std::min(static_cast<size_t>(rule.top_k), likeliest.size())
                                      : likeliest.size();
  double all = 1;  // of what top-k leaves
  if (std::ssize(likeliest) >= rule.top_k && rule.top_k > 0) {
    all = 0;
    for (const Considered& one : likeliest.first(allowed)) all += one.untruncated;
  }
  double kept = 0;
  size_t count = 0;
  while (count < allowed && kept < rule.top_p * all &&
         likeliest[count].untruncated >= rule.min_p * likeliest[0].untruncated)
    kept += likeliest[count++].untruncated;
  // What was cut by nothing goes on behind those that are considered.
  if (count == likeliest.size()) kept = std::max(kept, rule.top_p * all);
  double before = 0;
  for (size_t i = 0; i < likeliest.size(); ++i) {
    likeliest[i].before = before;
    likeliest[i].probability = i < count ? likeliest[i].untruncated / kept : 0;
    before += likeliest[i].probability;
  }
}

void use_number(double number, std::span<Considered> considered) {
  for (Considered& one : considered) {
    const double drawn = passed(one.before + one.probability, number) - passed(one.before, number);
    one.probability = (1 - kUnrelated) * drawn + kUnrelated * one.untruncated;
    if (std::isnan(one.probability)) one.probability = 0;  // a drafter whose weights broke
  }
  std::ranges::sort(considered, [](const Considered& a, const Considered& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
  });
}

}  // namespace tlt::spec

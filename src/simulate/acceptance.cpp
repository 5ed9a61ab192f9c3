// SPDX-License-Identifier: Apache-2.0
#include "simulate/acceptance.h"

#include <algorithm>
#include <cmath>
#include <queue>

namespace tlt::simulate {
namespace {

constexpr double kMissed = 0.45, kTokens = 120'000, kPower = 0.37;
constexpr double kRounding = 1000;

struct Candidate {
  double probability = 0;
  int32_t parent = 0, choice = 0, depth = 0;
  // The most probable first; of equals the one that is less deep.
  bool operator<(const Candidate& other) const {
    return std::pair(probability, -depth) < std::pair(other.probability, -other.depth);
  }
};

LikelyTree make_tree(const drafter::Strategy& strategy, double acceptance) {
  LikelyTree made{.tree = {}, .tokens = {1}};
  std::priority_queue<Candidate> candidates;
  const auto add_children = [&](int32_t parent, int32_t depth, double probability) {
    if (depth > strategy.depth) return;
    double choice_probability = acceptance;
    for (int32_t choice = 1; choice <= strategy.width; ++choice) {
      candidates.push({probability * choice_probability, parent, choice, depth});
      choice_probability =
          choice == 1 ? (1 - acceptance) * kLaterChoices : choice_probability * (1 - kLaterChoices);
    }
  };
  add_children(drafter::DraftTree::kRoot, 1, 1);
  while (!candidates.empty() && made.tree.size() + 1 < strategy.verify) {
    const Candidate best = candidates.top();
    candidates.pop();
    const int32_t node =
        made.tree.add(best.parent, best.choice, static_cast<float>(best.probability));
    made.tokens.push_back(made.tokens.back() + best.probability);
    add_children(node, best.depth + 1, best.probability);
  }
  return made;
}

}  // namespace

double acceptance_after(double tokens) {
  return tokens > 0 ? std::max(0.0, 1 - kMissed * std::pow(tokens / kTokens, -kPower)) : 0;
}

double tokens_for(double acceptance) {
  return acceptance > 0 ? kTokens * std::pow((1 - acceptance) / kMissed, -1 / kPower) : 0;
}

double chain_length(double acceptance) {
  double length = 1, reached = 1;
  for (int depth = 1; depth <= 8; ++depth) length += reached *= acceptance;
  return length;
}

const LikelyTree& DraftTrees::find(const drafter::Strategy& strategy, double acceptance) {
  const int rounded = static_cast<int>(std::lround(acceptance * kRounding));
  const auto key = std::pair(strategy, rounded);
  const auto found = trees_.find(key);
  if (found != trees_.end()) return found->second;
  return trees_.emplace(key, make_tree(strategy, rounded / kRounding)).first->second;
}

}  // namespace tlt::simulate

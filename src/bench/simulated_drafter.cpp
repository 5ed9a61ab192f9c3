// SPDX-License-Identifier: Apache-2.0
#include "bench/simulated_drafter.h"

#include <algorithm>
#include <cmath>

namespace tlt::bench {
namespace {

// The probability p with p + p^2 + … + p^depth = tokens - 1.
double find_acceptance(double tokens, int64_t depth) {
  double low = 0, high = 1;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    double sum = 0, power = 1;
    for (int64_t level = 0; level < depth; ++level) sum += power *= middle;
    (sum < tokens - 1 ? low : high) = middle;
  }
  return low;
}

}  // namespace

SimulatedDrafter::SimulatedDrafter(const Truth& truth, double acceptance_length, int64_t depth,
                                   int64_t vocabulary)
    : truth_(truth),
      vocabulary_(vocabulary),
      acceptance_(find_acceptance(acceptance_length, depth)),
      random_(/*seed=*/11, {}) {}

void SimulatedDrafter::propose(std::span<const drafter::DraftRequest> requests) {
  for (const drafter::DraftRequest& request : requests) propose(request);
}

int32_t SimulatedDrafter::other_than(int32_t token) {
  const auto other = static_cast<int32_t>(random_.below(static_cast<uint64_t>(vocabulary_ - 1)));
  return other < token ? other : other + 1;
}

// Level by level: the first node of a level continues the first node of the level above, and has
// the expected token as long as the whole path does; the other nodes have other tokens.
void SimulatedDrafter::propose(const drafter::DraftRequest& request) {
  const std::vector<int32_t>& truth = truth_.at(request.id);
  drafter::DraftTree& tree = *request.tree;
  const size_t begin = request.response.size();
  bool is_accepted = true;
  level_.assign(1, drafter::DraftTree::kRoot);
  for (int64_t depth = 0; depth < request.strategy.depth; ++depth) {
    next_level_.clear();
    const size_t place = begin + static_cast<size_t>(depth);
    is_accepted = is_accepted && place < truth.size() && random_.uniform() < acceptance_;
    const int32_t expected = place < truth.size() ? truth[place] : 0;
    for (const int32_t parent : level_) {
      const float above = parent == drafter::DraftTree::kRoot ? 1 : tree[parent].probability;
      const bool is_main = parent == level_.front();
      for (int64_t child = 0; child < request.strategy.width; ++child) {
        const bool is_first = child == 0 && is_main;
        const auto share = static_cast<float>(
            child == 0 ? acceptance_
                       : (1 - acceptance_) * std::pow(0.5, static_cast<double>(child)));
        const int32_t token = is_first && is_accepted ? expected : other_than(expected);
        if (tree.find_child(parent, token) == drafter::DraftTree::kNone)
          next_level_.push_back(tree.add(parent, token, above * share));
      }
    }
    std::stable_sort(next_level_.begin() + 1, next_level_.end(), [&](int32_t a, int32_t b) {
      return tree[a].probability > tree[b].probability;
    });
    if (std::ssize(next_level_) > request.strategy.width)
      next_level_.resize(static_cast<size_t>(request.strategy.width));
    std::swap(level_, next_level_);
  }
  tree.keep_best(static_cast<int32_t>(request.strategy.verify) - 1);
  tree.arrange();
}

}  // namespace tlt::bench

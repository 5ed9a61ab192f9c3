// Acceptance: which draft tokens are accepted.
//
// The target's token is the drafter's first choice with probability a, and after each choice that
// it is not, the next one with kLaterChoices: one number describes chains and trees. With a = 0.86
// this gives the 36 acceptance lengths of the TLT paper's figure 13a within 6 % rms
// (acceptance_test.cpp).
//
// A draft model's a rises with the tokens it was trained on:
//
//   1 - a = 0.45 (tokens / 120,000)^-0.37
//
// fitted to docs/performance.md (acceptance lengths of chains of 8: 2.2, 2.6, 3.2, 3.5 after 50,
// 100, 150, 200 optimizer steps of 2,400 tokens, 5.9 after 450 of 12,000; a 25 M model). A policy
// update costs a share of the tokens.
//
// Threading  DraftTrees: one thread; functions: any.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "drafter/draft_tree.h"
#include "drafter/strategy.h"

namespace tlt::simulate {

inline constexpr double kLaterChoices = 0.7;

double acceptance_after(double tokens);  // 0 up to some 14,000 tokens
double tokens_for(double acceptance);    // its inverse; 0 for 0
double chain_length(double acceptance);  // acceptance length of chains of 8

// The most probable tree of a strategy. The nodes are in order of probability, so that the most
// probable k are the first k.
struct LikelyTree {
  drafter::DraftTree tree;
  std::vector<double> tokens;  // [k]: expected tokens, the bonus token included, of k nodes

  // The last accepted node of the first `nodes`, for an endless supply of uniforms.
  template <class Uniform>
  int32_t sample(int32_t nodes, double acceptance, const Uniform& uniform) const {
    int32_t tip = drafter::DraftTree::kRoot;
    while (true) {
      int32_t choice = uniform() < acceptance ? 1 : 2;
      while (choice >= 2 && choice < kMostChoices && uniform() >= kLaterChoices) ++choice;
      const int32_t child = tree.find_child(tip, choice);
      if (child == drafter::DraftTree::kNone || child >= nodes) return tip;
      tip = child;
    }
  }
  static constexpr int32_t kMostChoices = 64;  // later ones are no nodes of any tree
};

// Owns  the trees that were made.
class DraftTrees {
 public:
  // The acceptance is rounded to 1/1000. The reference is valid as long as this.
  const LikelyTree& find(const drafter::Strategy& strategy, double acceptance);

 private:
  std::map<std::pair<drafter::Strategy, int>, LikelyTree> trees_;
};

}  // namespace tlt::simulate

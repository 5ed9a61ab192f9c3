// SuffixTree: builds a draft tree from the earlier continuations of a sequence.
//
// A child of a node is a token that continues some of the node's occurrences. Its probability is
//
//   node's * (sum of w^2 of the occurrences it continues) / (sum of all w^2 + largest w)
//
// where w is an occurrence's match length up to here + 1 (and w^2 is multiplied by the weight of
// its text). With one occurrence of length m that is Laplace's rule of succession,
// (m + 1) / (m + 2), for m successes in m trials. So d draft tokens after a match of m have
// probability (m + 1) / (m + 1 + d): the longer the match, the longer the draft, as in
// SuffixDecoding (Oliaro et al. 2024). Shorter matches contribute too; w^2 instead of w makes
// accepted drafts 2 % longer on the demo task. The tree is filled best first.
//
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "drafter/draft_tree.h"
#include "drafter/strategy.h"
#include "drafter/suffix/suffix_index.h"

namespace tlt::drafter {

class SuffixTree {
 public:
  // The occurrences to fill() the tree from, which consumes them.
  std::vector<Occurrence>* occurrences() { return &occurrences_; }

  // Fills the tree with the most probable nodes, none below `min_probability`, and arranges it. Of
  // equally probable children the one with the smaller token comes first.
  void fill(const Strategy& strategy, double min_probability, DraftTree* tree);

  int64_t memory_bytes() const;

 private:
  // A candidate node: a token that continues the occurrences [first, first + count).
  struct Candidate {
    double probability = 0;
    int32_t order = 0;  // in which it was found
    int32_t parent = 0;
    int32_t depth = 0;
    int32_t token = 0;
    size_t first = 0;
    size_t count = 0;
    // Heap order: by probability, then smaller depth, then found earlier.
    bool operator<(const Candidate& other) const;
  };
  struct Choice {  // a child and its weight among its siblings
    double weight = 0;
    int32_t token = 0;
    size_t first = 0;
    size_t count = 0;
  };

  // Adds the children of a node at `depth` with these occurrences to the candidates.
  void expand(int32_t node, int32_t depth, double probability, size_t first, size_t count);

  Strategy strategy_;
  double min_probability_ = 0;
  int32_t found_ = 0;
  std::vector<Occurrence> occurrences_;
  std::vector<Candidate> candidates_;  // a heap
  std::vector<Choice> choices_;
  std::vector<int64_t> expanded_;  // by depth
};

}  // namespace tlt::drafter

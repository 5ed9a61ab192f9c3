// SuffixTree: makes a draft tree of the ways in which a text has gone on before.
//
// A child of a node is a token with which some of the node's occurrences go on. Its probability is
//
//   node's * (sum of w^2 of the occurrences that go on with it) / (sum of all w^2 + largest w)
//
// where w is an occurrence's equal tokens up to here + 1 (w^2 times the weight of its text). With
// one occurrence of length m that is Laplace's rule of succession, (m + 1) / (m + 2), because it
// was right m times of m. So a guess of d tokens after a match of m has (m + 1) / (m + 1 + d): the
// longer the match the longer the draft, as in SuffixDecoding (Oliaro et al. 2024). Short matches
// join in for what they know; w^2 instead of w makes 2 % longer accepted drafts on the demo task.
// Best first.
//
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "spec/draft_tree.h"
#include "spec/strategy.h"
#include "spec/suffix_index.h"

namespace tlt::spec {

class SuffixTree {
 public:
  // Where to put the occurrences for fill(), which uses them up.
  std::vector<Occurrence>* occurrences() { return &occurrences_; }

  // The most probable nodes, none below `min_probability`, arranged. Of equally probable children
  // the one with the smaller token comes first.
  void fill(const Strategy& strategy, double min_probability, DraftTree* tree);

  int64_t memory_bytes() const;

 private:
  // A node that may come next: a token with which the occurrences [first, first + count) go on.
  struct Candidate {
    double probability = 0;
    int32_t order = 0;  // of being found
    int32_t parent = 0;
    int32_t depth = 0;
    int32_t token = 0;
    size_t first = 0;
    size_t count = 0;
    // A heap's largest element: probable, then not deep, then found early.
    bool operator<(const Candidate& other) const;
  };
  struct Choice {  // a child while its siblings are weighed
    double weight = 0;
    int32_t token = 0;
    size_t first = 0;
    size_t count = 0;
  };

  // Finds the children of a node at `depth` with these occurrences.
  void expand(int32_t node, int32_t depth, double probability, size_t first, size_t count);

  Strategy strategy_;
  double min_probability_ = 0;
  int32_t found_ = 0;
  std::vector<Occurrence> occurrences_;
  std::vector<Candidate> candidates_;  // a heap
  std::vector<Choice> choices_;
  std::vector<int64_t> expanded_;  // by depth
};

}  // namespace tlt::spec

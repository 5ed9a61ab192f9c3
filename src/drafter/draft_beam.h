// DraftBeam: chooses the nodes that a draft model expands next: EAGLE-2's dynamic tree, without the
// network.
//
// Level by level: the `width` most probable candidates of the last level are expanded, each into
// `width` children; every candidate stays in the tree, and the verify - 1 most probable of all are
// kept at the end. Candidates none of whose children could be among those are not expanded: the
// tree is the same and the network runs less. A batch drafter has one beam per sequence and runs
// one forward pass per level over the frontiers of all.
//
// Borrows    the tree, from start() to finish().
// Not here   the network (drafter/eagle/eagle_drafter.h).
// Threading  engine thread only; no locks.
//
//   beam.start(strategy, tree);
//   while (!beam.frontier().empty()) {
//     … run the network on the frontier's nodes; beam.lanes() are the states they continue …
//     beam.expand(tokens, probabilities);
//   }
//   beam.finish();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafter/draft_tree.h"
#include "drafter/strategy.h"

namespace tlt::drafter {

class DraftBeam {
 public:
  // Clears the tree; the frontier is the root alone. REQUIRES: not kOff.
  void start(const Strategy& strategy, DraftTree* tree);

  // The nodes to expand next, most probable first, at most `width`; empty when the strategy's depth
  // is reached or nothing more would be kept.
  std::span<const int32_t> frontier() const { return frontier_; }
  // For each of them, the index of its parent in the previous frontier. All 0 below the root.
  std::span<const int32_t> lanes() const { return lanes_; }

  // The `width` most probable next tokens of each node of the frontier, most probable first, with
  // their probabilities given that node: [frontier * width] each.
  void expand(std::span<const int32_t> tokens, std::span<const float> probabilities);

  // Keeps the best verify - 1 nodes and arranges the tree. May be called before full depth.
  void finish();

 private:
  void choose_frontier(int32_t first_candidate);
  // The probability that a parent must exceed for its children to be kept.
  float least_useful();

  Strategy strategy_;
  DraftTree* tree_ = nullptr;
  int64_t level_ = 0;  // number of expanded levels
  std::vector<int32_t> frontier_;
  std::vector<int32_t> lanes_;
  std::vector<float> probabilities_;  // scratch
};

}  // namespace tlt::drafter

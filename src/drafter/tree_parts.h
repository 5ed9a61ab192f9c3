// TreeParts: the parts of a verified draft tree that smaller strategies would have proposed, and
// what would have been accepted of them. So one verified tree tells of all strategies within its
// own.
//
// Borrows    the tree of the last take().
// Threading  thread-compatible; no allocation once warm.
//
//   parts.take(tree);
//   const auto [nodes, accepted] = parts.part({.depth = 4, .width = 1, .verify = 5});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "drafter/draft_tree.h"
#include "drafter/strategy.h"

namespace tlt::drafter {

class TreeParts {
 public:
  struct Part {
    size_t nodes = 0, accepted = 0;
  };

  void take(const VerifiedTree& tree);
  // REQUIRES: take(); the tree lives.
  Part part(const Strategy& strategy);

 private:
  VerifiedTree tree_;
  std::vector<int32_t> order_;     // nodes by rank
  std::vector<int64_t> children_;  // [node + 1]; -1: not in the part
};

}  // namespace tlt::drafter

// The nodes of a draft tree as token paths.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "drafter/draft_tree.h"

namespace tlt::tests {

using Path = std::vector<int32_t>;  // tokens from the root

inline Path path_of(const drafter::DraftTree& tree, int32_t node) {
  Path path;
  for (; node != drafter::DraftTree::kRoot; node = tree[node].parent)
    path.push_back(tree[node].token);
  std::ranges::reverse(path);
  return path;
}

// The paths with their probabilities.
inline std::map<Path, float> paths_of(const drafter::DraftTree& tree) {
  std::map<Path, float> paths;
  for (int32_t node = 0; node < tree.size(); ++node)
    paths[path_of(tree, node)] = tree[node].probability;
  return paths;
}

}  // namespace tlt::tests

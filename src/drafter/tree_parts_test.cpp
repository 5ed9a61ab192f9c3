// SPDX-License-Identifier: Apache-2.0
#include "drafter/tree_parts.h"

#include <gtest/gtest.h>

namespace tlt::drafter {
namespace {

// Two children of the root, of which the second and its child were accepted.
TEST(TreePartsTest, APartHasTheMostProbableNodesOfItsStrategy) {
  const std::vector<DraftNode> nodes = {{.token = 1, .parent = -1, .depth = 1, .probability = 0.6f},
                                        {.token = 2, .parent = -1, .depth = 1, .probability = 0.3f},
                                        {.token = 3, .parent = 0, .depth = 2, .probability = 0.5f},
                                        {.token = 4, .parent = 1, .depth = 2, .probability = 0.2f}};
  TreeParts parts;
  parts.take({.nodes = nodes, .accepted = 3});
  const auto part = [&](const Strategy& strategy) {
    const auto [taken, accepted] = parts.part(strategy);
    return std::pair(taken, accepted);
  };
  using Numbers = std::pair<size_t, size_t>;
  EXPECT_EQ(part({2, 2, 5}), Numbers(4, 2)) << "all";
  EXPECT_EQ(part({1, 2, 5}), Numbers(2, 1)) << "one level";
  EXPECT_EQ(part({2, 1, 5}), Numbers(2, 0)) << "the chain of first choices";
  EXPECT_EQ(part({2, 2, 4}), Numbers(3, 1)) << "all but the least probable";
  parts.take({.nodes = nodes, .accepted = 2});
  EXPECT_EQ(part({2, 1, 5}), Numbers(2, 2));
  parts.take({});
  EXPECT_EQ(part({2, 1, 5}), Numbers(0, 0));
}

}  // namespace
}  // namespace tlt::drafter

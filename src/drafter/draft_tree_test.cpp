// SPDX-License-Identifier: Apache-2.0
#include "drafter/draft_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/check.h"
#include "base/random.h"
#include "tests/support/tree_paths.h"

namespace tlt::drafter {
namespace {

using tests::Path;
using tests::path_of;
using tests::paths_of;

// Random trees with probabilities of few values, so that ties are common; some exceed the parent's
// or are NaN.
void fill_random(RandomStream& random, int32_t nodes, DraftTree& tree) {
  tree.clear();
  while (tree.size() < nodes) {
    const auto parent = static_cast<int32_t>(random.below(static_cast<uint64_t>(tree.size()) + 1));
    const auto token = static_cast<int32_t>(random.below(1000));
    if (tree.find_child(parent - 1, token) != DraftTree::kNone) continue;
    const float probability = random.below(20) == 0 ? std::numeric_limits<float>::quiet_NaN()
                                                    : static_cast<float>(random.below(6)) / 4;
    tree.add(parent - 1, token, probability);
  }
}

// Reference for keep_best(): sorts everything.
std::vector<int32_t> best_nodes(const DraftTree& tree, int32_t count) {
  std::vector<int32_t> nodes(static_cast<size_t>(tree.size()));
  for (int32_t i = 0; i < tree.size(); ++i) nodes[static_cast<size_t>(i)] = i;
  std::ranges::sort(nodes, {}, [&](int32_t node) {
    return std::tuple(-tree[node].probability, tree[node].depth, node);
  });
  nodes.resize(static_cast<size_t>(std::clamp(count, 0, tree.size())));
  std::ranges::sort(nodes);
  return nodes;
}

TEST(DraftTreeTest, ProbabilityIsAtMostTheParents) {
  DraftTree tree;
  const int32_t a = tree.add(DraftTree::kRoot, 1, 1.5f);
  const int32_t b = tree.add(a, 1, 0.5f);
  const int32_t c = tree.add(b, 1, 0.75f);
  const int32_t d = tree.add(c, 1, std::numeric_limits<float>::quiet_NaN());
  const int32_t e = tree.add(a, 2, -1.0f);
  EXPECT_EQ(tree[a].probability, 1.0f);
  EXPECT_EQ(tree[c].probability, 0.5f);
  EXPECT_EQ(tree[d].probability, 0.0f);
  EXPECT_EQ(tree[e].probability, 0.0f);
  EXPECT_EQ(tree[d].depth, 4);
  tree.check();
}

TEST(DraftTreeTest, MissingParentThrows) {
  DraftTree tree;
  EXPECT_THROW(tree.add(0, 1, 1), Error);
  EXPECT_THROW(tree.add(DraftTree::kNone, 1, 1), Error);
  EXPECT_EQ(tree.add(DraftTree::kRoot, 1, 1), 0);
  EXPECT_THROW(tree.add(1, 1, 1), Error);
}

TEST(DraftTreeTest, CheckDetectsSiblingsWithEqualTokens) {
  DraftTree tree;
  tree.add(DraftTree::kRoot, 7, 0.5f);
  tree.add(0, 7, 0.5f);
  tree.check();
  tree.add(DraftTree::kRoot, 7, 0.25f);
  EXPECT_THROW(tree.check(), Error);
}

TEST(DraftTreeTest, FindChildIgnoresOtherParents) {
  DraftTree tree;
  const int32_t a = tree.add(DraftTree::kRoot, 1, 0.5f);
  const int32_t b = tree.add(DraftTree::kRoot, 2, 0.25f);
  const int32_t c = tree.add(b, 1, 0.25f);
  EXPECT_EQ(tree.find_child(DraftTree::kRoot, 1), a);
  EXPECT_EQ(tree.find_child(b, 1), c);
  EXPECT_EQ(tree.find_child(a, 1), DraftTree::kNone);
  EXPECT_EQ(tree.find_child(DraftTree::kRoot, 3), DraftTree::kNone);
}

TEST(DraftTreeTest, KeepBestBreaksTiesByDepthThenOrder) {
  DraftTree tree;
  const int32_t a = tree.add(DraftTree::kRoot, 1, 0.5f);
  const int32_t deep = tree.add(a, 2, 0.5f);
  tree.add(deep, 3, 0.5f);
  tree.add(DraftTree::kRoot, 4, 0.5f);
  tree.add(DraftTree::kRoot, 5, 0.5f);
  tree.keep_best(3);
  EXPECT_EQ(paths_of(tree), (std::map<Path, float>{{{1}, 0.5f}, {{4}, 0.5f}, {{5}, 0.5f}}));
  tree.keep_best(1);
  EXPECT_EQ(paths_of(tree), (std::map<Path, float>{{{1}, 0.5f}}));
  tree.keep_best(0);
  EXPECT_TRUE(tree.empty());
}

TEST(DraftTreeTest, KeepBestMatchesSortingAndLeavesNoOrphan) {
  RandomStream random(/*seed=*/11, {});
  DraftTree tree;
  for (int step = 0; step < 2000; ++step) {
    fill_random(random, static_cast<int32_t>(random.below(40)), tree);
    const auto count = static_cast<int32_t>(random.below(45));
    std::vector<Path> want;
    for (const int32_t node : best_nodes(tree, count)) want.push_back(path_of(tree, node));
    tree.keep_best(count);
    ASSERT_NO_THROW(tree.check()) << "step " << step;
    std::vector<Path> got;  // in the old order
    for (int32_t node = 0; node < tree.size(); ++node) got.push_back(path_of(tree, node));
    ASSERT_EQ(got, want) << "step " << step;
  }
}

TEST(DraftTreeTest, ArrangedNodesFindTheirAncestorsInSlots) {
  RandomStream random(/*seed=*/12, {});
  DraftTree tree;
  for (int step = 0; step < 2000; ++step) {
    fill_random(random, static_cast<int32_t>(random.below(60)), tree);
    const std::map<Path, float> before = paths_of(tree);
    tree.arrange();
    ASSERT_NO_THROW(tree.check()) << "step " << step;
    ASSERT_EQ(paths_of(tree), before) << "step " << step;
    std::vector<int32_t> slots;  // by depth - 1: the last node stored there
    for (int32_t node = 0; node < tree.size(); ++node) {
      const auto depth = static_cast<size_t>(tree[node].depth);
      slots.resize(std::max(slots.size(), depth));
      slots[depth - 1] = node;
      for (int32_t at = node; at != DraftTree::kRoot; at = tree[at].parent)
        ASSERT_EQ(slots[static_cast<size_t>(tree[at].depth - 1)], at)
            << "step " << step << ", node " << node << " of " << tree.size();
    }
  }
}

TEST(DraftTreeTest, ArrangeStoresTheMostProbableChildLast) {
  RandomStream random(/*seed=*/13, {});
  DraftTree tree;
  for (int step = 0; step < 2000; ++step) {
    fill_random(random, static_cast<int32_t>(random.below(60)), tree);
    std::map<Path, int32_t> added;
    for (int32_t node = 0; node < tree.size(); ++node) added[path_of(tree, node)] = node;
    tree.arrange();
    for (int32_t left = 0; left < tree.size(); ++left)
      for (int32_t right = left + 1; right < tree.size(); ++right) {
        if (tree[left].parent != tree[right].parent) continue;
        ASSERT_LE(tree[left].probability, tree[right].probability) << "step " << step;
        if (tree[left].probability == tree[right].probability) {
          ASSERT_GT(added[path_of(tree, left)], added[path_of(tree, right)]) << "step " << step;
        }
      }
  }
}

TEST(DraftTreeTest, MemoryIsConstantOnceWarm) {
  RandomStream random(/*seed=*/14, {});
  DraftTree tree;
  const auto use = [&](int32_t nodes) {
    fill_random(random, nodes, tree);
    tree.keep_best(nodes - nodes / 3);
    tree.arrange();
  };
  use(300);  // keep_best and arrange swap two arrays of nodes: both must have grown
  use(300);
  const int64_t warm = tree.memory_bytes();
  EXPECT_GT(warm, 300 * 48);
  for (int32_t nodes = 0; nodes < 100; ++nodes) {
    use(nodes);
    ASSERT_EQ(tree.memory_bytes(), warm) << nodes << " nodes";
  }
}

}  // namespace
}  // namespace tlt::drafter

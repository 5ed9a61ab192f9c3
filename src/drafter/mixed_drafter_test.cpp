// SPDX-License-Identifier: Apache-2.0
#include "drafter/mixed_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/random.h"
#include "drafter/suffix/suffix_drafter.h"
#include "tests/support/plain_drafter.h"
#include "tests/support/suffix_reference.h"

namespace tlt::drafter {
namespace {

using tests::Path;
using tests::paths_of;
using Tokens = std::vector<int32_t>;

// Proposes the trees it is given.
struct ScriptedDrafter final : tests::PlainDrafter {
  std::string_view kind() const override { return "scripted"; }
  void propose(std::span<const DraftRequest> requests) override {
    TLT_CHECK(!fails, "as planned");
    for (size_t i = 0; i < requests.size(); ++i) *requests[i].tree = trees.at(i);
  }
  std::vector<DraftTree> trees;
  bool fails = false;
};

DraftTree random_tree(RandomStream& random, const Strategy& strategy) {
  DraftTree tree;
  for (int tries = 0; tries < 60 && tree.size() < strategy.verify - 1; ++tries) {
    const int32_t parent =
        static_cast<int32_t>(random.below(static_cast<uint64_t>(tree.size()) + 1)) - 1;
    const auto token = static_cast<int32_t>(random.below(4));
    const int32_t depth = parent == DraftTree::kRoot ? 0 : tree[parent].depth;
    if (depth == strategy.depth || tree.find_child(parent, token) != DraftTree::kNone) continue;
    const float above = parent == DraftTree::kRoot ? 1 : tree[parent].probability;
    // Few values, so that ties are common.
    tree.add(parent, token, above * (0.25f + 0.25f * static_cast<float>(random.below(4))));
  }
  tree.arrange();
  return tree;
}

// Reference: all paths with their drafters, one by one: the most probable, of equals the less deep.
struct SlowMix {
  struct Mixed {
    double miss = 1;
    uint32_t drafters = 0;
  };
  std::map<Path, Mixed> paths;

  void add(const DraftTree& tree, size_t drafter) {
    for (const auto& [path, probability] : paths_of(tree)) {
      paths[path].miss *= 1 - static_cast<double>(probability);
      paths[path].drafters |= 1u << drafter;
    }
  }
  // Probabilities of all paths, each at most its prefix's.
  std::map<Path, float> probabilities(const MixedDrafter& drafter) const {
    std::map<Path, float> all;
    for (const auto& [path, mixed] : paths) {  // a prefix sorts before its continuations
      const NodeOrigin origin{static_cast<float>(1 - mixed.miss), mixed.drafters};
      const Path above(path.begin(), path.end() - 1);
      all[path] = std::min(static_cast<float>(drafter.corrected(origin)),
                           above.empty() ? 1 : all.at(above));
    }
    return all;
  }
};

struct Mixture {
  ScriptedDrafter first, second;
  std::vector<bool> failed = {false, false};
  MixedDrafter mixed{{&first, &second}, [this](size_t i, std::span<const DraftRequest> requests) {
                       try {
                         (i == 0 ? first : second).propose(requests);
                         return true;
                       } catch (const Error&) {
                         failed[i] = true;
                         return false;
                       }
                     }};

  std::vector<DraftTree> propose(const Strategy& strategy) {
    std::vector<DraftTree> trees(first.trees.size());
    std::vector<DraftRequest> requests;
    for (DraftTree& tree : trees) {
      tree.add(DraftTree::kRoot, 99, 1);  // left from the step before
      requests.push_back(
          {.id = {}, .prompt = {}, .response = {}, .strategy = strategy, .tree = &tree});
    }
    mixed.propose(requests);
    return trees;
  }
};

TEST(MixedDrafterTest, MatchesTheReferenceOnRandomTrees) {
  RandomStream random(5, {});
  Mixture mixture;
  int64_t both = 0;
  for (int round = 0; round < 300; ++round) {
    const Strategy strategy{static_cast<int64_t>(1 + random.below(6)), 4,
                            static_cast<int64_t>(2 + random.below(30))};
    mixture.first.trees.clear(), mixture.second.trees.clear();
    for (int i = 0; i < 3; ++i) {
      mixture.first.trees.push_back(random_tree(random, strategy));
      mixture.second.trees.push_back(random_tree(random, strategy));
    }
    const std::vector<DraftTree> trees = mixture.propose(strategy);
    for (size_t i = 0; i < trees.size(); ++i) {
      SlowMix slow;
      slow.add(mixture.first.trees[i], 0);
      slow.add(mixture.second.trees[i], 1);
      const std::map<Path, float> all = slow.probabilities(mixture.mixed);
      trees[i].check();
      EXPECT_TRUE(trees[i].is_depth_first());
      EXPECT_EQ(trees[i].size(),
                std::min<int64_t>(strategy.verify - 1, static_cast<int64_t>(all.size())));
      // The same paths, except for the choice among ties.
      std::vector<std::pair<float, int64_t>> wanted, got;  // - probability, depth
      for (const auto& [path, probability] : all) wanted.emplace_back(-probability, path.size());
      for (const auto& [path, probability] : paths_of(trees[i])) {
        ASSERT_TRUE(all.contains(path)) << "round " << round;
        EXPECT_EQ(probability, all.at(path)) << "round " << round;
        got.emplace_back(-probability, path.size());
      }
      std::ranges::sort(wanted), std::ranges::sort(got);
      wanted.resize(got.size());
      EXPECT_EQ(got, wanted) << "round " << round;
      for (const DraftNode& node : trees[i].nodes()) both += node.origin.drafters == 3 ? 1 : 0;
    }
    // Learns, so that later rounds are corrected: the second drafter is always wrong alone.
    for (const DraftTree& tree : trees) {
      int32_t accepted = DraftTree::kRoot;
      for (int32_t node = 0; node < tree.size(); ++node)
        if (tree[node].parent == accepted && tree[node].origin.drafters != 2) accepted = node;
      mixture.mixed.record(std::vector<VerifiedTree>{{tree.nodes(), accepted}});
    }
  }
  EXPECT_GT(both, 300);
  EXPECT_LT(mixture.mixed.corrected({0.5f, 2}), 0.1);
  EXPECT_GT(mixture.mixed.corrected({0.5f, 1}), 0.2);
}

DraftTree chain(const Tokens& tokens, float each) {
  DraftTree tree;
  int32_t node = DraftTree::kRoot;
  float probability = 1;
  for (const int32_t token : tokens) node = tree.add(node, token, probability *= each);
  return tree;
}

TEST(MixedDrafterTest, AcceptanceIsLearnedAndRestored) {
  Mixture mixture;
  mixture.first.trees = {chain({1, 2, 3}, 0.8f)};
  mixture.second.trees = {chain({1, 5, 6}, 0.9f)};
  const Strategy strategy{4, 2, 4};
  EXPECT_TRUE(paths_of(mixture.propose(strategy)[0]).contains({1, 5, 6})) << "higher probability";
  for (int i = 0; i < 40; ++i) {
    const DraftTree tree = mixture.propose({4, 2, 8})[0];
    int32_t accepted = tree.find_child(DraftTree::kRoot, 1);
    accepted = tree.find_child(accepted, 2);
    mixture.mixed.record(std::vector<VerifiedTree>{{tree.nodes(), accepted}});
  }
  const std::map<Path, float> taught = paths_of(mixture.propose(strategy)[0]);
  EXPECT_TRUE(taught.contains({1, 2}));
  EXPECT_FALSE(taught.contains({1, 5, 6}));
  Mixture other;
  other.first.trees = mixture.first.trees, other.second.trees = mixture.second.trees;
  other.mixed.restore(mixture.mixed.save());
  EXPECT_EQ(paths_of(other.propose(strategy)[0]), taught);
}

TEST(MixedDrafterTest, FailingDrafterLeavesTheOther) {
  Mixture mixture;
  mixture.first.trees = {chain({1, 2, 3}, 0.8f)};
  mixture.second.trees = {chain({7}, 0.9f)};
  mixture.first.fails = true;
  EXPECT_EQ(paths_of(mixture.propose({4, 2, 8})[0]), (std::map<Path, float>{{{7}, 0.9f}}));
  EXPECT_TRUE(mixture.failed[0]);
  mixture.second.fails = true;
  EXPECT_TRUE(mixture.propose({4, 2, 8})[0].empty());
}

// The suffix drafter continues where the network's draft ends.
TEST(MixedDrafterTest, SuffixContinuesLeavesOfOtherDrafters) {
  SuffixDrafter suffix({});
  ScriptedDrafter network;
  MixedDrafter mixed({&suffix, &network}, [&](size_t i, std::span<const DraftRequest> requests) {
    i == 0 ? suffix.propose(requests) : network.propose(requests);
    return true;
  });
  const Tokens prompt = {1, 2, 3, 4, 5, 6, 7, 8};
  const Tokens response = {20};  // never seen: the suffix drafter proposes nothing
  network.trees = {chain({3, 4}, 0.9f)};
  DraftTree tree;
  const std::vector<DraftRequest> requests = {{{1, 0}, prompt, response, {5, 2, 16}, &tree}};
  mixed.propose(requests);
  tree.check();
  const std::map<Path, float> paths = paths_of(tree);
  EXPECT_TRUE(paths.contains({3, 4, 5, 6, 7}));
  EXPECT_FALSE(paths.contains({3, 4, 5, 6, 7, 8})) << "depth 5";
  EXPECT_LT(paths.at({3, 4, 5}), paths.at({3, 4}));
  for (const DraftNode& node : tree.nodes())
    EXPECT_EQ(node.origin.drafters, node.depth <= 2 ? 2 : (MixedDrafter::kFollowed | 1));
  // Continuations have their own calibration.
  for (int i = 0; i < 50; ++i)
    mixed.record(std::vector<VerifiedTree>{{tree.nodes(), tree.find_child(0, 4)}});
  mixed.propose(requests);
  EXPECT_LT(paths_of(tree).at({3, 4, 5}), 0.1f);
  EXPECT_GT(paths_of(tree).at({3, 4}), 0.7f);
}

}  // namespace
}  // namespace tlt::drafter

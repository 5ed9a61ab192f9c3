// SPDX-License-Identifier: Apache-2.0
#include "speculation/acceptance.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "base/random.h"

namespace tlt::speculation {
namespace {

// A random tree of at most `size` nodes, `width` children a node and this depth.
std::vector<drafter::DraftNode> random_tree(const drafter::Strategy& strategy,
                                            RandomStream& random) {
  std::vector<drafter::DraftNode> nodes;
  for (int tries = 0; tries < 400 && std::ssize(nodes) < strategy.verify - 1; ++tries) {
    const auto parent = static_cast<int32_t>(random.below(nodes.size() + 1)) - 1;
    const drafter::DraftNode* above = parent < 0 ? nullptr : &nodes[static_cast<size_t>(parent)];
    const int32_t depth = above ? above->depth + 1 : 1;
    const int64_t siblings = std::ranges::count_if(
        nodes, [&](const drafter::DraftNode& node) { return node.parent == parent; });
    if (depth > strategy.depth || siblings >= strategy.width) continue;
    // Few different probabilities, so that there are ties.
    const float share = 0.125f * static_cast<float>(1 + random.below(8));
    nodes.push_back({tries, parent, depth, (above ? above->probability : 1.0f) * share});
  }
  return nodes;
}

// What a smaller strategy accepts of a tree: builds its tree node by node in the order of
// keep_best, then walks it.
int64_t slow_accepted(const std::vector<drafter::DraftNode>& nodes, int32_t accepted,
                      const drafter::Strategy& smaller) {
  std::vector<size_t> order(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    if (nodes[a].probability != nodes[b].probability)
      return nodes[a].probability > nodes[b].probability;
    return nodes[a].depth < nodes[b].depth;
  });
  std::vector<bool> kept(nodes.size());
  int64_t rows = 1;
  for (const size_t i : order) {
    if (nodes[i].depth > smaller.depth) continue;
    if (rows++ >= smaller.verify) break;
    const auto rank = std::ranges::count_if(order, [&](size_t other) {
      return nodes[other].parent == nodes[i].parent &&
             std::ranges::find(order, other) < std::ranges::find(order, i);
    });
    kept[i] = rank < smaller.width;
  }
  std::vector<int32_t> path;
  for (int32_t at = accepted; at >= 0; at = nodes[static_cast<size_t>(at)].parent)
    path.insert(path.begin(), at);
  int64_t depth = 0;
  while (depth < std::ssize(path) && kept[static_cast<size_t>(path[static_cast<size_t>(depth)])])
    ++depth;
  return depth;
}

TEST(AcceptanceTest, TreeTellsExactlyWhatEverySmallerOneWouldHaveGiven) {
  const std::vector<drafter::Strategy> strategies = {{6, 4, 24}, {6, 4, 12}, {6, 4, 4}, {3, 4, 24},
                                                     {2, 2, 6},  {6, 1, 6},  {1, 1, 2}, {4, 3, 9}};
  RandomStream random(4, {});
  for (int round = 0; round < 300; ++round) {
    const std::vector<drafter::DraftNode> nodes = random_tree(strategies[0], random);
    const auto accepted = static_cast<int32_t>(random.below(nodes.size() + 1)) - 1;
    Acceptance acceptance(strategies);
    const std::vector<drafter::VerifiedTree> trees(100000,
                                                   {nodes, accepted});  // outweigh the prior
    acceptance.record(0, std::span(trees).first(1));
    acceptance.forget(0, 0);
    acceptance.record(0, std::span(trees).first(1));
    const drafter::VerifiedTree& tree = trees.front();
    EXPECT_EQ(acceptance.expected(0), 1 + tree.accepted_depth());
    for (size_t i = 1; i < strategies.size(); ++i)
      ASSERT_NEAR(acceptance.expected(i), 1 + slow_accepted(nodes, accepted, strategies[i]), 1e-9)
          << "round " << round << " strategy " << drafter::to_string(strategies[i]);
  }
}

std::vector<drafter::DraftNode> chain(int32_t length) {
  std::vector<drafter::DraftNode> nodes;
  for (int32_t i = 0; i < length; ++i) nodes.push_back({i, i - 1, i + 1, 0.5f});
  return nodes;
}

TEST(AcceptanceTest, LargerStrategyIsContinuedLevelByLevelAndSmallerOnesAreNot) {
  Acceptance acceptance({{2, 1, 3}, {4, 1, 5}, {1, 1, 2}});
  const std::vector<drafter::DraftNode> nodes = chain(2);
  // Of three trees two are accepted to the end: a level follows another with 4 of 5.
  const std::vector<drafter::VerifiedTree> trees = {{nodes, 1}, {nodes, 1}, {nodes, -1}};
  for (int i = 0; i < 500; ++i) acceptance.record(0, trees);
  EXPECT_NEAR(acceptance.expected(0), 1 + 4.0 / 3, 0.01);
  EXPECT_NEAR(acceptance.expected(2), 1 + 2.0 / 3, 0.01);
  const double two_more_levels = 4.0 / 3 + 2.0 / 3 * (0.8 + 0.64);
  EXPECT_NEAR(acceptance.expected(1), 1 + two_more_levels * 1.15, 0.03);
  EXPECT_GT(acceptance.deviation(1), acceptance.deviation(0));
  EXPECT_EQ(acceptance.deviation(2), acceptance.deviation(0));  // known as well
}

TEST(AcceptanceTest, UselessDrafterIsKnownAfterAFewTrees) {
  Acceptance acceptance({{8, 4, 48}, {2, 1, 3}});
  EXPECT_GT(acceptance.expected(0), 1.9);
  const std::vector<drafter::DraftNode> nodes = chain(2);
  const std::vector<drafter::VerifiedTree> trees(64, {nodes, -1});
  acceptance.record(1, trees);
  EXPECT_LT(acceptance.expected(1), 1.05);
  EXPECT_LT(acceptance.expected(0), 1.1);
}

TEST(AcceptanceTest, ForgottenTreesLeaveTheExpectationUntilOthersCome) {
  Acceptance acceptance({{2, 1, 3}});
  const std::vector<drafter::DraftNode> nodes = chain(2);
  const std::vector<drafter::VerifiedTree> good(20, {nodes, 1}), bad(20, {nodes, -1});
  for (int i = 0; i < 100; ++i) acceptance.record(0, good);
  const double sure = acceptance.deviation(0);
  acceptance.forget(0.1, 8);
  EXPECT_NEAR(acceptance.expected(0), 3, 0.01);
  EXPECT_GT(acceptance.deviation(0), 5 * sure);
  acceptance.record(0, bad);
  EXPECT_LT(acceptance.expected(0), 1.7);
}

TEST(AcceptanceTest, SuddenChangeIsNoticedInTwentySteps) {
  Acceptance acceptance({{2, 1, 3}});
  const std::vector<drafter::DraftNode> nodes = chain(2);
  const std::vector<drafter::VerifiedTree> good(4, {nodes, 1}), bad(4, {nodes, -1});
  for (int i = 0; i < 2000; ++i) acceptance.record(0, good);
  for (int i = 0; i < 25; ++i) acceptance.record(0, bad);
  EXPECT_LT(acceptance.expected(0), 1.5);
  for (int i = 0; i < 2000; ++i) acceptance.record(0, bad);
  for (int i = 0; i < 25; ++i) acceptance.record(0, good);
  EXPECT_GT(acceptance.expected(0), 2.5);
}

TEST(AcceptanceTest, LuckIsNotTakenForAChange) {
  Acceptance acceptance({{2, 1, 3}});
  const std::vector<drafter::DraftNode> nodes = chain(2);
  RandomStream random(1, {});
  const auto draw = [&] {
    return drafter::VerifiedTree{nodes, static_cast<int32_t>(random.below(3)) - 1};
  };
  for (int i = 0; i < 3000; ++i) {
    acceptance.record(0, std::vector<drafter::VerifiedTree>{draw(), draw()});
    if (i > 500) {
      ASSERT_NEAR(acceptance.expected(0), 2, 0.2) << i;
    }
  }
}

TEST(AcceptanceTest, RestoredAcceptanceIsTheSame) {
  const std::vector<drafter::Strategy> strategies = {{2, 1, 3}, {4, 1, 5}};
  Acceptance acceptance(strategies), resumed(strategies);
  const std::vector<drafter::DraftNode> nodes = chain(2);
  const std::vector<drafter::VerifiedTree> trees = {{nodes, 1}, {nodes, 0}, {nodes, -1}};
  const std::vector<drafter::VerifiedTree> bad(3, {nodes, -1});
  for (int i = 0; i < 100; ++i) acceptance.record(0, trees);
  for (int i = 0; i < 12; ++i) acceptance.record(0, bad);  // in the middle of a change
  resumed.restore(nlohmann::json::parse(acceptance.save().dump()));
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(resumed.expected(1), acceptance.expected(1));
    EXPECT_EQ(resumed.deviation(0), acceptance.deviation(0));
    acceptance.record(0, bad), resumed.record(0, bad);
  }
}

}  // namespace
}  // namespace tlt::speculation

// SPDX-License-Identifier: Apache-2.0
#include "speculation/row_budget.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"

namespace tlt::speculation {
namespace {

// The trees of a step: tree i is a chain with these probabilities.
struct Chains {
  std::vector<drafter::DraftTree> trees;
  std::vector<const drafter::DraftTree*> pointers;
  std::vector<int32_t> keep;
  RowScratch nodes;

  explicit Chains(const std::vector<std::vector<float>>& probabilities)
      : trees(probabilities.size()), keep(probabilities.size(), -1) {
    for (size_t i = 0; i < trees.size(); ++i) {
      int32_t parent = drafter::DraftTree::kRoot;
      for (const float probability : probabilities[i])
        parent = trees[i].add(parent, 1, probability);
      pointers.push_back(&trees[i]);
    }
  }

  std::vector<int32_t> split(double tokens_per_second, int64_t max_rows, const CostTable& costs,
                             double context = 0, int64_t others = 0) {
    split_rows({.trees = pointers,
                .sequences = std::ssize(pointers) + others,
                .calibration = drafter::Calibration(),
                .costs = costs,
                .tokens_per_second = tokens_per_second,
                .context = context,
                .max_rows = max_rows},
               keep, nodes);
    return keep;
  }
};

// A pass takes a second, each further row a tenth.
CostTable straight() { return CostTable({{1, 1, 1.1}, {1, 101, 11.1}}, {}); }

TEST(RowBudgetTest, NodesAreKeptWhileTheyRepayTheirRow) {
  Chains chains({{0.9f, 0.8f, 0.3f}, {0.4f, 0.1f}, {}, {0.05f}});
  // At 5 tokens per second a row of 0.1 seconds is worth half a token.
  EXPECT_EQ(chains.split(5, 100, straight()), (std::vector<int32_t>{2, 0, 0, 0}));
  EXPECT_EQ(chains.split(2, 100, straight()), (std::vector<int32_t>{3, 1, 0, 0}));
  EXPECT_EQ(chains.split(0, 100, straight()), (std::vector<int32_t>{3, 2, 0, 1}));
  EXPECT_EQ(chains.split(100, 100, straight()), (std::vector<int32_t>{0, 0, 0, 0}));
}

TEST(RowBudgetTest, RowCostsDependOnTheContext) {
  Chains chains({{0.9f, 0.8f, 0.3f}});
  const CostTable costs({{1, 1, 1, 100}, {1, 11, 3, 100}, {1, 1, 4, 900}, {1, 11, 8, 900}}, {});
  EXPECT_EQ(chains.split(2, 100, costs, 100), (std::vector<int32_t>{2}));
  EXPECT_EQ(chains.split(2, 100, costs, 500), (std::vector<int32_t>{2}));
  EXPECT_EQ(chains.split(2, 100, costs, 1000), (std::vector<int32_t>{1}));
}

TEST(RowBudgetTest, ScarceRowsGoToTheMostProbableNodes) {
  Chains chains({{0.9f, 0.8f, 0.3f}, {0.4f, 0.1f}, {}, {0.05f}});
  EXPECT_EQ(chains.split(0, 4 + 3, straight()), (std::vector<int32_t>{2, 1, 0, 0}));
  EXPECT_EQ(chains.split(0, 4, straight()), (std::vector<int32_t>{0, 0, 0, 0}));
  EXPECT_THROW(chains.split(0, 3, straight()), Error);
}

TEST(RowBudgetTest, CostStepsAreCrossedIfWorthwhile) {
  Chains chains({{0.9f, 0.85f, 0.8f, 0.75f, 0.7f}});
  // The second row costs a second; those after it nothing.
  const CostTable step({{1, 1, 1}, {1, 2, 2}, {1, 100, 2}}, {});
  EXPECT_EQ(chains.split(2, 100, step), (std::vector<int32_t>{5}));
  EXPECT_EQ(chains.split(5, 100, step), (std::vector<int32_t>{0}));
}

// In an exploration step only a few sequences have trees.
TEST(RowBudgetTest, RowsCostWhatTheyCostInTheWholeBatch) {
  // The first 16 rows cost a second each, further ones a tenth.
  const CostTable costs({{1, 1, 1}, {1, 16, 16}, {1, 26, 17}}, {});
  Chains chains({{0.5f, 0.25f}});
  EXPECT_EQ(chains.split(1, 100, costs), (std::vector<int32_t>{0}));
  EXPECT_EQ(chains.split(1, 100, costs, 0, /*others=*/15), (std::vector<int32_t>{2}));
  EXPECT_EQ(chains.split(1, 17, costs, 0, /*others=*/15), (std::vector<int32_t>{1}));
  EXPECT_THROW(chains.split(1, 15, costs, 0, /*others=*/15), Error);
}

// Compared with every split of rows over sequences.
TEST(RowBudgetTest, SplitIsOptimal) {
  RandomStream random(8, {});
  const CostTable costs({{1, 1, 1}, {1, 6, 1.2}, {1, 8, 2}, {1, 40, 4}}, {});
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<float>> probabilities(3);
    for (std::vector<float>& chain : probabilities) {
      float reached = 1;
      for (size_t i = 0; i < 4; ++i)
        chain.push_back(reached *= static_cast<float>(random.uniform()));
    }
    Chains chains(probabilities);
    const double rate = 3 * random.uniform();
    const auto max_rows = static_cast<int64_t>(3 + random.below(13));
    const auto value = [&](const std::vector<int32_t>& keep) {
      double tokens = 0;
      int64_t rows = 3;
      for (size_t i = 0; i < 3; ++i)
        for (int32_t node = 0; node < keep[i]; ++node, ++rows)
          tokens += static_cast<double>(probabilities[i][static_cast<size_t>(node)]);
      return rows > max_rows ? -1e9
                             : tokens - rate * costs.target_seconds(static_cast<double>(rows), 3);
    };
    double best = -1e9;
    for (int32_t code = 0; code < 125; ++code)
      best = std::max(best, value({code % 5, code / 5 % 5, code / 25}));
    ASSERT_NEAR(value(chains.split(rate, max_rows, costs)), best, 1e-5) << round;
  }
}

}  // namespace
}  // namespace tlt::speculation

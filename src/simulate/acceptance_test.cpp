// SPDX-License-Identifier: Apache-2.0
#include "simulate/acceptance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "simulate/fit.h"

namespace tlt::simulate {
namespace {

TEST(AcceptanceTest, ChainsHaveTheClosedForm) {
  DraftTrees trees;
  const LikelyTree& chain = trees.find({3, 1, 4}, 0.5);
  EXPECT_EQ(chain.tree.size(), 3);
  EXPECT_EQ(chain.tokens, (std::vector<double>{1, 1.5, 1.75, 1.875}));
  EXPECT_EQ(chain_length(1), 9);
}

TEST(AcceptanceTest, SampledPathsHaveTheExpectedTokens) {
  DraftTrees trees;
  for (const double acceptance : {0.3, 0.8}) {
    const LikelyTree& tree = trees.find({6, 4, 32}, acceptance);
    tree.tree.check();
    for (const int32_t nodes : {5, tree.tree.size()}) {
      RandomStream random(3, {});
      double tokens = 0;
      constexpr int kSamples = 20000;
      for (int i = 0; i < kSamples; ++i) {
        const int32_t last = tree.sample(nodes, acceptance, [&] { return random.uniform(); });
        tokens += last < 0 ? 1 : 1 + tree.tree[last].depth;
      }
      EXPECT_NEAR(tokens / kSamples / tree.tokens[static_cast<size_t>(nodes)], 1, 0.02) << nodes;
    }
  }
}

TEST(AcceptanceTest, OneRateGivesTheAcceptanceLengthsOfThePaper) {
  const auto figure =
      read_measurements(std::string(TLT_SOURCE_DIR) + "/tests/data/simulate/figure13.jsonl");
  DraftTrees trees;
  double sum = 0, cells = 0;
  for (const Measurement& it : figure) {
    if (!it.strategy) continue;
    const double length = trees.find(*it.strategy, 0.86).tokens.back();
    sum += std::pow(length / it.accept_length - 1, 2);
    ++cells;
  }
  EXPECT_EQ(cells, 36);
  EXPECT_LT(std::sqrt(sum / cells), 0.06);
}

TEST(AcceptanceTest, TrainingGivesTheMeasuredAcceptance) {
  // docs/performance.md: acceptance length by tokens.
  for (const auto& [tokens, length] :
       {std::pair(120e3, 2.2), {240e3, 2.6}, {360e3, 3.2}, {480e3, 3.5}, {5.4e6, 5.9}})
    EXPECT_NEAR(chain_length(acceptance_after(tokens)) / length, 1, 0.09) << tokens;
  EXPECT_EQ(acceptance_after(0), 0);
  EXPECT_EQ(acceptance_after(10e3), 0);
  EXPECT_NEAR(acceptance_after(tokens_for(0.8)), 0.8, 1e-9);
  EXPECT_EQ(tokens_for(0), 0);
}

}  // namespace
}  // namespace tlt::simulate

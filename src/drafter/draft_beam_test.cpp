// SPDX-License-Identifier: Apache-2.0
#include "drafter/draft_beam.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/random.h"
#include "tests/support/tree_paths.h"

namespace tlt::drafter {
namespace {

using tests::Path;
using tests::path_of;

struct NextTokens {
  std::vector<int32_t> tokens;
  std::vector<float> probabilities;
};

// A fake network: `width` tokens with falling probabilities that depend on the path. Multiples of
// 1/8, so that ties are common and products are exact.
NextTokens next_tokens(uint64_t seed, const Path& path, int64_t width) {
  for (const int32_t token : path) seed = seed * 1000003 + static_cast<uint64_t>(token) + 1;
  RandomStream random(seed, {});
  NextTokens next;
  for (int64_t i = 0; i < width; ++i) {
    next.tokens.push_back(static_cast<int32_t>(i * 10 + static_cast<int64_t>(random.below(10))));
    next.probabilities.push_back(static_cast<float>(1 + random.below(8)) / 8);
  }
  std::ranges::sort(next.probabilities, std::greater<>());
  return next;
}

// EAGLE-2's tree by flat indices: candidate f of level 0 is child f of the root; of level i >= 1
// it is k + (i - 1) k^2 + slot * k + child.
std::map<Path, float> by_flat_index(uint64_t seed, const Strategy& strategy) {
  const auto k = static_cast<size_t>(strategy.width);
  struct Candidate {
    Path path;
    float score;
  };
  std::vector<Candidate> flat;
  std::vector<size_t> beam;  // flat indices
  const auto select = [&](size_t from, size_t count) {
    std::vector<size_t> chosen;
    for (size_t f = from; f < flat.size(); ++f) chosen.push_back(f);
    std::ranges::stable_sort(chosen,
                             [&](size_t a, size_t b) { return flat[a].score > flat[b].score; });
    chosen.resize(std::min(count, chosen.size()));
    return chosen;
  };
  for (int64_t level = 0; level < strategy.depth; ++level) {
    const size_t from = flat.size();
    const size_t slots = level == 0 ? 1 : k;
    for (size_t slot = 0; slot < slots; ++slot) {
      const Candidate parent = level == 0 ? Candidate{{}, 1.0f} : flat[beam[slot]];
      const NextTokens next = next_tokens(seed, parent.path, strategy.width);
      for (size_t child = 0; child < k; ++child) {
        Candidate candidate{parent.path, parent.score * next.probabilities[child]};
        candidate.path.push_back(next.tokens[child]);
        flat.push_back(candidate);
      }
    }
    beam = select(from, k);
  }
  std::map<Path, float> chosen;  // probability, then depth; flat indices rise with depth
  for (const size_t f : select(0, static_cast<size_t>(strategy.verify - 1)))
    chosen[flat[f].path] = flat[f].score;
  return chosen;
}

TEST(DraftBeamTest, MatchesTheFormulaWithFlatIndices) {
  DraftBeam beam;
  DraftTree tree;
  int64_t scored = 0, formula = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomStream random(seed, {.step = 1});
    Strategy strategy{static_cast<int64_t>(1 + random.below(8)),
                      static_cast<int64_t>(1 + random.below(6)), 0};
    const auto nodes = static_cast<uint64_t>(scored_nodes(strategy));
    strategy.verify = static_cast<int64_t>(2 + random.below(nodes));
    beam.start(strategy, &tree);
    while (!beam.frontier().empty()) {
      NextTokens all;
      for (const int32_t node : beam.frontier()) {
        const NextTokens next = next_tokens(seed, path_of(tree, node), strategy.width);
        all.tokens.insert(all.tokens.end(), next.tokens.begin(), next.tokens.end());
        all.probabilities.insert(all.probabilities.end(), next.probabilities.begin(),
                                 next.probabilities.end());
      }
      beam.expand(all.tokens, all.probabilities);
    }
    ASSERT_LE(tree.size(), scored_nodes(strategy)) << "seed " << seed;
    scored += tree.size();
    formula += scored_nodes(strategy);
    beam.finish();
    tree.check();
    ASSERT_EQ(tree.size(), strategy.verify - 1) << "seed " << seed;
    std::map<Path, float> got;
    for (int32_t node = 0; node < tree.size(); ++node)
      got[path_of(tree, node)] = tree[node].probability;
    ASSERT_EQ(got, by_flat_index(seed, strategy)) << "seed " << seed << ", " << to_string(strategy);
  }
  EXPECT_LT(scored, formula * 9 / 10) << "useless expansions are skipped";
}

TEST(DraftBeamTest, LanesAreTheParentsOfFrontierNodes) {
  DraftBeam beam;
  DraftTree tree;
  const Strategy strategy{6, 5, 40};
  beam.start(strategy, &tree);
  std::vector<int32_t> before;
  while (!beam.frontier().empty()) {
    ASSERT_EQ(beam.lanes().size(), beam.frontier().size());
    NextTokens all;
    for (size_t i = 0; i < beam.frontier().size(); ++i) {
      const int32_t node = beam.frontier()[i];
      if (node != DraftTree::kRoot) {
        ASSERT_EQ(before.at(static_cast<size_t>(beam.lanes()[i])), tree[node].parent);
      }
      const NextTokens next = next_tokens(/*seed=*/4, path_of(tree, node), strategy.width);
      all.tokens.insert(all.tokens.end(), next.tokens.begin(), next.tokens.end());
      all.probabilities.insert(all.probabilities.end(), next.probabilities.begin(),
                               next.probabilities.end());
    }
    before.assign(beam.frontier().begin(), beam.frontier().end());
    beam.expand(all.tokens, all.probabilities);
  }
}

TEST(DraftBeamTest, FinishMayBeCalledBeforeFullDepth) {
  DraftBeam beam;
  DraftTree tree;
  beam.start({8, 2, 10}, &tree);
  beam.expand(std::vector<int32_t>{5, 6}, std::vector<float>{0.75f, 0.25f});
  beam.finish();
  ASSERT_EQ(tree.size(), 2);
  EXPECT_EQ(tree[1].token, 5);  // the most probable last
  EXPECT_TRUE(beam.frontier().empty());
}

TEST(DraftBeamTest, WrongSizesAndOffStrategyThrow) {
  DraftBeam beam;
  DraftTree tree;
  EXPECT_THROW(beam.start(kOff, &tree), Error);
  beam.start({1, 2, 3}, &tree);
  EXPECT_THROW(beam.expand(std::vector<int32_t>{5}, std::vector<float>{0.5f}), Error);
  beam.expand(std::vector<int32_t>{5, 6}, std::vector<float>{0.5f, 0.5f});
  EXPECT_THROW(beam.expand({}, {}), Error);  // its depth is reached
}

}  // namespace
}  // namespace tlt::drafter

// SPDX-License-Identifier: Apache-2.0
#include "drafter/suffix/suffix_tree.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/support/suffix_reference.h"

namespace tlt::drafter {
namespace {

using tests::Path;
using tests::paths_of;
using tests::SlowTexts;

// An occurrence with a match of `length` tokens.
Occurrence after(int32_t length, const std::vector<int32_t>& next, float weight = 1) {
  return {
      .next = next.data(), .end = next.data() + next.size(), .length = length, .weight = weight};
}

TEST(SuffixTreeTest, OneOccurrenceFollowsTheRuleOfSuccession) {
  const std::vector<int32_t> next = {5, 6, 7, 8, 9};
  SuffixTree suffix_tree;
  DraftTree tree;
  suffix_tree.occurrences()->assign(1, after(3, next));
  suffix_tree.fill({4, 2, 8}, 0.01, &tree);
  ASSERT_EQ(tree.size(), 4);  // the strategy's depth
  for (int32_t node = 0; node < tree.size(); ++node) {
    EXPECT_EQ(tree[node].token, 5 + node);
    EXPECT_FLOAT_EQ(tree[node].probability, 4.0f / static_cast<float>(4 + node + 1));
  }
  suffix_tree.occurrences()->assign(1, after(3, next));
  suffix_tree.fill({9, 2, 12}, 0.5, &tree);
  EXPECT_EQ(tree.size(), 4);  // 4/8 is the last one above min_probability
}

TEST(SuffixTreeTest, LongerMatchesWeighMore) {
  const std::vector<int32_t> often = {1};
  const std::vector<int32_t> once = {2};
  SuffixTree suffix_tree;
  DraftTree tree;
  *suffix_tree.occurrences() = {after(1, often), after(1, often), after(9, once)};
  suffix_tree.fill({1, 2, 3}, 0.01, &tree);
  const std::map<Path, float> want = {{{1}, 8.0f / 118}, {{2}, 100.0f / 118}};
  EXPECT_EQ(paths_of(tree), want);
  EXPECT_EQ(tree[1].token, 2);  // arranged
}

TEST(SuffixTreeTest, NoOccurrenceOrOffGivesAnEmptyTree) {
  const std::vector<int32_t> next = {5};
  SuffixTree suffix_tree;
  DraftTree tree;
  tree.add(DraftTree::kRoot, 1, 1);
  suffix_tree.fill({4, 2, 8}, 0.01, &tree);
  EXPECT_TRUE(tree.empty());
  suffix_tree.occurrences()->assign(1, after(3, next));
  suffix_tree.fill(kOff, 0.01, &tree);
  EXPECT_TRUE(tree.empty());
}

TEST(SuffixTreeTest, RandomSequencesMatchTheReference) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomStream random(seed, {.step = 2});
    const uint64_t alphabet = 1 + random.below(5);
    SuffixIndex index(/*min_match=*/1);
    SlowTexts texts;
    for (size_t text = 0; text < 4; ++text) {
      const float weight = random.below(2) == 0 ? 1.0f : 0.5f;
      index.add_text({}, weight);
      texts.add_text({}, weight);
    }
    SuffixTree suffix_tree;
    DraftTree tree;
    for (int step = 0; step < 120; ++step) {
      const size_t text = random.below(4);
      const auto token = static_cast<int32_t>(random.below(alphabet));
      index.append(static_cast<int32_t>(text), token);
      texts.append(text, token);
      if (step % 8 != 0) continue;
      const Strategy strategy{static_cast<int64_t>(1 + random.below(9)),
                              static_cast<int64_t>(1 + random.below(5)),
                              static_cast<int64_t>(1 + random.below(40))};
      const double min_probability = random.below(2) == 0 ? 0.001 : 0.1;
      index.find(static_cast<int32_t>(text), suffix_tree.occurrences());
      suffix_tree.fill(strategy, min_probability, &tree);
      tree.check();
      ASSERT_EQ(paths_of(tree), texts.draft(text, 1, strategy, min_probability))
          << "seed " << seed << ", step " << step << ", " << to_string(strategy);
    }
  }
}

}  // namespace
}  // namespace tlt::drafter

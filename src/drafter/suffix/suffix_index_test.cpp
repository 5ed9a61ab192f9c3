// SPDX-License-Identifier: Apache-2.0
#include "drafter/suffix/suffix_index.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/support/suffix_reference.h"

namespace tlt::drafter {
namespace {

using tests::SlowTexts;

// Weights identify the texts.
float weight_of(size_t text) { return static_cast<float>(text + 1); }

std::vector<SlowTexts::Match> find(const SuffixIndex& index, const SlowTexts& texts, size_t text,
                                   std::span<const int32_t> path = {}) {
  std::vector<Occurrence> found;
  index.find(static_cast<int32_t>(text), path, &found);
  std::vector<SlowTexts::Match> matches;
  for (const Occurrence& one : found) {
    const auto from = static_cast<size_t>(one.weight - 1);
    const size_t next = texts.texts[from].tokens.size() - static_cast<size_t>(one.end - one.next);
    EXPECT_EQ(*one.next, texts.texts[from].tokens[next]);
    EXPECT_EQ(one.period, from == text && path.empty() ? one.end - one.next : 0);
    matches.push_back({from, next, one.length});
  }
  return matches;
}

TEST(SuffixIndexTest, RandomWalkMatchesExhaustiveSearch) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    RandomStream random(seed, {});
    const auto min_match = static_cast<int32_t>(1 + random.below(3));
    const uint64_t alphabet = 1 + random.below(6);
    SuffixIndex index(min_match);
    SlowTexts texts;
    for (int step = 0; step < 500; ++step) {
      if (texts.texts.empty() || random.below(60) == 0) {
        std::vector<int32_t> before(random.below(40));
        for (int32_t& token : before) token = static_cast<int32_t>(random.below(alphabet));
        const float weight = weight_of(texts.texts.size());
        ASSERT_EQ(index.add_text(before, weight), std::ssize(texts.texts));
        texts.add_text(before, weight);
      }
      const size_t text = random.below(texts.texts.size());
      const auto token = static_cast<int32_t>(random.below(alphabet));
      index.append(static_cast<int32_t>(text), token);
      texts.append(text, token);
      if (step % 4 != 0) continue;
      const size_t asked = random.below(texts.texts.size());
      ASSERT_EQ(find(index, texts, asked), texts.find(asked, min_match))
          << "seed " << seed << ", step " << step;
    }
  }
}

// Finds as if the path had been appended, without entering it.
TEST(SuffixIndexTest, FindWithAPathMatchesExhaustiveSearch) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    RandomStream random(seed, {2});
    const auto min_match = static_cast<int32_t>(1 + random.below(3));
    const uint64_t alphabet = 2 + random.below(4);
    SuffixIndex index(min_match);
    SlowTexts texts;
    for (int text = 0; text < 4; ++text)
      index.add_text({}, weight_of(texts.texts.size())), texts.add_text({}, 1);
    for (int step = 0; step < 400; ++step) {
      const size_t text = random.below(3);  // the last one stays empty
      const auto token = static_cast<int32_t>(random.below(alphabet));
      index.append(static_cast<int32_t>(text), token);
      texts.append(text, token);
      if (step % 4 != 0) continue;
      std::vector<int32_t> path(1 + random.below(random.below(4) == 0 ? 40 : 5));
      for (int32_t& one : path) one = static_cast<int32_t>(random.below(alphabet));
      const size_t asked = random.below(4);
      SlowTexts longer = texts;
      longer.texts.push_back(texts.texts[asked]);
      longer.texts.back().tokens.insert(longer.texts.back().tokens.end(), path.begin(), path.end());
      ASSERT_EQ(find(index, texts, asked, path), longer.find(4, min_match))
          << "seed " << seed << ", step " << step;
    }
  }
}

// A periodic text has long chains and matches longer than kLongestMatch.
TEST(SuffixIndexTest, RepetitionFindsTheNewestLongestMatches) {
  SuffixIndex index(/*min_match=*/1);
  SlowTexts texts;
  index.add_text({}, weight_of(0));
  texts.add_text({}, weight_of(0));
  for (int32_t i = 0; i < 700; ++i) {
    index.append(0, i % 7);
    texts.append(0, i % 7);
  }
  const auto found = find(index, texts, 0);
  EXPECT_EQ(found, texts.find(0, 1));
  ASSERT_EQ(found.size(), SuffixIndex::kMostFound);
  EXPECT_EQ(found.front(), (SlowTexts::Match{0, 693, SuffixIndex::kLongestMatch}));
}

TEST(SuffixIndexTest, FirstResponseTokensFollowThePrompt) {
  SuffixIndex index(/*min_match=*/1);
  const std::vector<int32_t> prompt = {1, 2, 3};
  const int32_t sibling = index.add_text(prompt, 1);
  const int32_t own = index.add_text(prompt, 1);
  std::vector<Occurrence> found;
  index.find(own, &found);
  EXPECT_TRUE(found.empty());
  index.append(sibling, 9);
  index.find(own, &found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(*found[0].next, 9);
  EXPECT_EQ(found[0].length, 3);
  EXPECT_EQ(index.tokens(sibling).size(), 1u);  // `before` is not part of the text
}

TEST(SuffixIndexTest, ClearKeepsTheMemory) {
  SuffixIndex index(/*min_match=*/1);
  const auto use = [&](int32_t offset) {
    for (int32_t text = 0; text < 5; ++text) {
      ASSERT_EQ(index.add_text({}, 1), text);
      for (int32_t i = 0; i < 1000; ++i) index.append(text, offset + i * i % 501 + text);
    }
  };
  use(0);
  const int64_t warm = index.memory_bytes();
  EXPECT_GT(warm, 5 * 1000 * 16);
  index.clear();
  use(100000);
  EXPECT_EQ(index.memory_bytes(), warm);
  std::vector<Occurrence> found;
  index.clear();
  const int32_t text = index.add_text(std::vector<int32_t>{100001}, 1);
  index.find(text, &found);
  EXPECT_TRUE(found.empty());
}

TEST(SuffixIndexTest, AddReturnsNoTextWhenFull) {
  SuffixIndex index(/*min_match=*/1);
  int32_t texts = 0;
  while (index.add_text({}, 1) != SuffixIndex::kNoText) ++texts;
  EXPECT_EQ(texts, 4095);
  index.append(4094, 1);
  index.append(4094, 1);
  std::vector<Occurrence> found;
  index.find(4094, &found);
  EXPECT_EQ(found.size(), 1u);
}

// The last text's last offset would be kNowhere.
TEST(SuffixIndexTest, TokensAfterTheFirstMillionAreNotIndexed) {
  SuffixIndex index(/*min_match=*/1);
  index.add_text({}, 1);
  for (int32_t i = 0; i < (1 << 20); ++i) index.append(0, i & 1023);
  std::vector<Occurrence> found;
  index.find(0, &found);
  EXPECT_EQ(found.size(), SuffixIndex::kMostFound);
  index.append(0, 7);
  index.find(0, &found);
  EXPECT_TRUE(found.empty());
  const int32_t sibling = index.add_text(std::vector<int32_t>{7}, 1);
  index.find(sibling, &found);
  EXPECT_EQ(found.size(), SuffixIndex::kMostFound);
}

}  // namespace
}  // namespace tlt::drafter

// SPDX-License-Identifier: Apache-2.0
#include "data/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/random.h"

namespace tlt::data {
namespace {

using Tokens = std::vector<int32_t>;

// Letters a..d and random merges, each making the two texts' concatenation.
struct RandomModel {
  std::vector<std::string> texts = {"a", "b", "c", "d"};
  std::vector<Bpe::Merge> merges;

  explicit RandomModel(RandomStream& random, int count = 40) {
    for (int i = 0; i < count; ++i) {
      const auto left = static_cast<int32_t>(random.below(texts.size()));
      const auto right = static_cast<int32_t>(random.below(texts.size()));
      const std::string text = texts[left] + texts[right];
      const auto known = std::ranges::find(texts, text);
      const auto result = static_cast<int32_t>(known - texts.begin());
      if (known == texts.end()) texts.push_back(text);
      merges.push_back({left, right, result});
    }
  }

  Bpe bpe(bool ignores_merges = false) const {
    std::unordered_map<std::string, int32_t> vocabulary;
    for (size_t i = 0; i < texts.size(); ++i) vocabulary.emplace(texts[i], static_cast<int32_t>(i));
    return Bpe(std::move(vocabulary), merges,
               {.is_byte_level = true, .ignores_merges = ignores_merges});
  }

  // The definition: the best merge, leftmost first, until there is none.
  Tokens slow(std::string_view word) const {
    std::map<std::pair<int32_t, int32_t>, size_t> rank;
    for (size_t i = 0; i < merges.size(); ++i) rank[{merges[i].left, merges[i].right}] = i;
    Tokens symbols;
    for (const char letter : word) symbols.push_back(letter - 'a');
    while (true) {
      size_t best = merges.size(), place = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = rank.find({symbols[i], symbols[i + 1]});
        if (found != rank.end() && found->second < best) best = found->second, place = i;
      }
      if (best == merges.size()) return symbols;
      symbols[place] = merges[best].result;
      symbols.erase(symbols.begin() + place + 1);
    }
  }
};

Tokens encode(const Bpe& bpe, std::string_view word) {
  Tokens tokens;
  bpe.append(word, tokens);
  return tokens;
}

// Words on both sides of the length where the algorithm changes.
TEST(BpeTest, RandomWordsMatchReference) {
  RandomStream random(3, {});
  for (int round = 0; round < 60; ++round) {
    const RandomModel model(random);
    const Bpe bpe = model.bpe();
    for (int i = 0; i < 30; ++i) {
      std::string word;
      for (uint64_t letters = random.below(90); letters > 0; --letters)
        word.push_back("abcd"[random.below(4)]);
      ASSERT_EQ(encode(bpe, word), model.slow(word)) << word;
    }
  }
}

TEST(BpeTest, EqualNeighboursMergeFromTheLeft) {
  const Bpe bpe({{"a", 0}, {"aa", 1}}, std::vector<Bpe::Merge>{{0, 0, 1}}, {});
  EXPECT_EQ(encode(bpe, "aaa"), (Tokens{1, 0}));
  EXPECT_EQ(encode(bpe, std::string(101, 'a')).size(), 51U);
}

TEST(BpeTest, IgnoredMergesTakeAWholeWord) {
  std::unordered_map<std::string, int32_t> vocabulary = {{"a", 0}, {"b", 1}, {"ab", 2}};
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {.ignores_merges = true}), "ab"), Tokens{2});
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {.ignores_merges = true}), "aba"), (Tokens{0, 1, 0}));
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {.ignores_merges = false}), "ab"), (Tokens{0, 1}));
}

TEST(BpeTest, WithoutByteLevelAUnitIsACharacter) {
  const Bpe bpe({{"é", 0}, {"a", 1}, {"éa", 2}}, std::vector<Bpe::Merge>{{0, 1, 2}},
                {.is_byte_level = false});
  EXPECT_EQ(encode(bpe, "éaé"), (Tokens{2, 0}));
  EXPECT_EQ(encode(bpe, "日a?"), Tokens{1});  // unknown characters are left out
}

TEST(WordCacheTest, GivesBackWhatWasPutAndNothingElse) {
  RandomStream random(4, {});
  std::map<std::string, Tokens> put;
  WordCache cache;
  for (int i = 0; i < 50000; ++i) {
    std::string word(1 + random.below(32), ' ');
    for (char& letter : word) letter = "abc"[random.below(3)];
    word.resize(std::min<size_t>(word.size(), random.below(2) ? 3 : 40));
    Tokens tokens;
    const bool is_known = cache.try_append(word, tokens);
    if (is_known) {
      ASSERT_EQ(tokens, put.at(word));
    } else {
      ASSERT_TRUE(tokens.empty());
      for (uint64_t count = random.below(11); count > 0; --count)
        tokens.push_back(static_cast<int32_t>(random.below(9)));
      cache.put(word, tokens);
      put[word] = tokens;
    }
  }
  Tokens tokens;
  cache.put("short", Tokens{1, 2});
  EXPECT_TRUE(cache.try_append("short", tokens));
  EXPECT_EQ(tokens, (Tokens{1, 2}));
}

}  // namespace
}  // namespace tlt::data

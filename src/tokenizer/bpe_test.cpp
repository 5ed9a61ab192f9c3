// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/random.h"

namespace tlt::tokenizer {
namespace {

using Tokens = std::vector<int32_t>;

// Letters a..d and random merges, each of which concatenates two strings.
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

  // The definition: apply the best merge, leftmost first, until there is none.
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

TEST(BpeTest, IgnoredMergesEncodeAWholeWord) {
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

TEST(BpeTest, CharacterWithoutTokenIsItsBytesOrUnknown) {
  const std::unordered_map<std::string, int32_t> vocabulary = {
      {"<unk>", 0}, {"a", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}, {"<0x41>", 4}};
  const Bpe fused(
      vocabulary, {},
      {.is_byte_level = false, .falls_back = true, .unknown = 0, .fuses_unknown = true});
  EXPECT_EQ(encode(fused, "éaA"), (Tokens{2, 3, 1, 4}));
  EXPECT_EQ(encode(fused, "日本a日"), (Tokens{0, 1, 0}));
  EXPECT_EQ(encode(fused, "日é本a"), (Tokens{2, 3, 0, 1}));  // as in the Hugging Face library
  const Bpe apart(vocabulary, {}, {.is_byte_level = false, .unknown = 0});
  EXPECT_EQ(encode(apart, "日本aé"), (Tokens{0, 0, 1, 0}));
}

// Random strings of a, b and "▁", with unknown characters: the parts' tokens are the word's.
TEST(BpeTest, PartsOfAWordGiveTheTokensOfTheWord) {
  RandomStream random(7, {});
  int64_t parts = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> texts = {"<unk>", "a", "b", "▁", "<0xC3>", "<0xA9>"};
    std::unordered_map<std::string, int32_t> vocabulary;
    std::vector<Bpe::Merge> merges;
    for (size_t i = 0; i < texts.size(); ++i) vocabulary.emplace(texts[i], static_cast<int32_t>(i));
    for (int i = 0; i < 12; ++i) {
      const std::string &left = texts[1 + random.below(texts.size() - 1)],
                        &right = texts[1 + random.below(texts.size() - 1)];
      const bool is_rare = right.starts_with("▁") && !left.ends_with("▁") && random.below(4) > 0;
      const std::string text = left + right;
      if (is_rare) continue;  // else no word could be cut
      const auto [known, is_new] =
          vocabulary.try_emplace(text, static_cast<int32_t>(vocabulary.size()));
      merges.push_back({vocabulary.at(left), vocabulary.at(right), known->second});
      if (is_new) texts.push_back(text);
    }
    const Bpe bpe(
        vocabulary, merges,
        {.is_byte_level = false, .falls_back = true, .unknown = 0, .fuses_unknown = true});
    for (int i = 0; i < 40; ++i) {
      std::string word;
      for (uint64_t left = 1 + random.below(30); left > 0; --left)
        word += std::array{"a", "b", "▁", "▁", "é", "日"}[random.below(6)];
      Tokens together;
      for (std::string_view rest = word; !rest.empty(); ++parts) {
        const size_t bytes = bpe.first_part(rest);
        ASSERT_GT(bytes, 0U);
        bpe.append(rest.substr(0, bytes), together);
        rest.remove_prefix(bytes);
      }
      ASSERT_EQ(together, encode(bpe, word)) << word;
    }
  }
  EXPECT_GT(parts, 300 * 40 * 2);
}

TEST(WordCacheTest, ReturnsExactlyWhatWasStored) {
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
}  // namespace tlt::tokenizer

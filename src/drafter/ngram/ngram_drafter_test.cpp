// SPDX-License-Identifier: Apache-2.0
#include "drafter/ngram/ngram_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/check.h"
#include "base/random.h"
#include "tests/support/shown_texts.h"

namespace tlt::drafter {
namespace {

using Path = std::vector<int32_t>;

Path longer_by(Path path, int32_t token) {
  path.push_back(token);
  return path;
}

std::vector<Path> paths_in_order(const DraftTree& tree) {  // in the tree's order
  std::vector<Path> paths;
  for (const DraftNode& node : tree.nodes())
    paths.push_back(longer_by(
        node.parent == DraftTree::kRoot ? Path() : paths[static_cast<size_t>(node.parent)],
        node.token));
  return paths;
}

// A drafter and the sequences it gets.
struct ShownNgrams {
  explicit ShownNgrams(const NgramOptions& options = {}) : drafter(options) {}
  NgramDrafter drafter;
  tests::ShownTexts texts{drafter};
};

// Reference: FastRL's n-gram drafter on explicit n-grams.
struct SlowNgrams {
  explicit SlowNgrams(const NgramOptions& with) : options(with) {}

  struct Run {
    int64_t occurrences = 0;
    int64_t newest = 0;
  };
  NgramOptions options;
  std::map<Path, Run> runs;
  std::map<SequenceId, Path> texts;
  int64_t now = 0;

  void push(SequenceId id, int32_t token) {
    Path& text = texts[id];
    text.push_back(token);
    const auto size = std::ssize(text);
    for (int64_t start = std::max<int64_t>(0, size - options.branch_length); start < size;
         ++start) {
      const int64_t length = size - start;
      if (length <= options.min_window) continue;
      for (int64_t part = length == options.min_window + 1 ? 1 : length; part <= length; ++part) {
        Run& run = runs[Path(text.begin() + start, text.begin() + start + part)];
        ++run.occurrences;
        run.newest = ++now;
      }
    }
  }

  std::vector<Path> children(const Path& run) const {  // newest first
    std::vector<Path> found;
    for (auto at = runs.upper_bound(run);
         at != runs.end() && std::ssize(at->first) > std::ssize(run) &&
         std::equal(run.begin(), run.end(), at->first.begin());
         ++at)
      if (at->first.size() == run.size() + 1) found.push_back(at->first);
    std::ranges::sort(found, std::greater<>(), [&](const Path& p) { return runs.at(p).newest; });
    return found;
  }
  std::vector<Path> matches(SequenceId id) const {  // longest first
    const Path& text = texts.at(id);
    std::vector<Path> found;
    for (int64_t window = std::min<int64_t>(std::ssize(text), options.max_window);
         window >= options.min_window; --window) {
      Path suffix(text.end() - window, text.end());
      if (runs.contains(suffix)) found.push_back(suffix);
    }
    return found;
  }

  // Level by level; children that a longer match has added count for the breadth.
  std::set<Path> by_breadth(SequenceId id, int64_t nodes) const {
    const double step = static_cast<double>(options.max_breadth - options.min_breadth) /
                        static_cast<double>(options.max_window - options.min_window + 1);
    std::set<Path> tree;
    for (const Path& match : matches(id)) {
      double breadth = static_cast<double>(options.max_window - std::ssize(match)) * step +
                       static_cast<double>(options.min_breadth);
      std::vector<Path> level = {match};
      for (; !level.empty(); breadth -= step) {
        std::vector<Path> next;
        for (const Path& run : level) {
          const std::vector<Path> all = children(run);
          for (int64_t i = 0; i < std::min(std::max<int64_t>(1, static_cast<int64_t>(breadth)),
                                           static_cast<int64_t>(all.size()));
               ++i) {
            if (std::ssize(tree) == nodes) return tree;
            const Path& child = all[static_cast<size_t>(i)];
            tree.insert(Path(child.begin() + std::ssize(match), child.end()));
            next.push_back(child);
          }
        }
        level = next;
      }
    }
    return tree;
  }
};

void compare_with_slow(const NgramOptions& options, uint64_t seed) {
  ShownNgrams shown(options);
  SlowNgrams slow(options);
  RandomStream random(seed, {.step = 4});
  const uint64_t alphabet = 2 + random.below(20);
  for (uint32_t sample = 0; sample < 3; ++sample) {
    const SequenceId id{1, sample};
    Path prompt(random.below(30));
    for (int32_t& token : prompt) token = static_cast<int32_t>(random.below(alphabet));
    shown.texts.begin(id, prompt);
    slow.texts[id];
    const size_t known = std::min(prompt.size(), static_cast<size_t>(options.branch_length));
    for (const int32_t token : std::span(prompt).last(known)) slow.push(id, token);
  }
  for (int step = 0; step < 120; ++step) {
    const SequenceId id{1, static_cast<uint32_t>(random.below(3))};
    Path tokens(random.below(4));
    for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(alphabet));
    shown.texts.commit(id, tokens);
    for (const int32_t token : tokens) slow.push(id, token);
    if (step % 4 != 0) continue;
    const auto nodes = static_cast<int64_t>(1 + random.below(20));
    const Strategy free{.depth = options.branch_length, .width = nodes, .verify = nodes + 1};
    const std::vector<Path> got = paths_in_order(shown.texts.draft(id, free));
    ASSERT_EQ(std::set<Path>(got.begin(), got.end()), slow.by_breadth(id, nodes))
        << "seed " << seed << ", step " << step;
  }
  shown.drafter.trie().check();
  ASSERT_EQ(shown.drafter.trie().nodes(), std::ssize(slow.runs)) << "seed " << seed;
}

TEST(NgramDrafterTest, MatchesTheReference) {
  for (uint64_t seed = 0; seed < 6; ++seed) compare_with_slow({}, seed);
  compare_with_slow({.branch_length = 6, .max_window = 4, .min_window = 2, .max_breadth = 6}, 6);
}

// Counted in the sequences: how often an n-gram occurs with more than min_window known tokens from
// its start on.
TEST(NgramDrafterTest, EachOccurrenceIsCountedOnce) {
  ShownNgrams shown;
  RandomStream random(/*seed=*/3, {});
  std::vector<Path> texts(3);
  for (uint32_t sample = 0; sample < 3; ++sample) shown.texts.begin({1, sample}, {});
  for (int step = 0; step < 400; ++step) {
    const auto sample = static_cast<uint32_t>(random.below(3));
    texts[sample].push_back(static_cast<int32_t>(random.below(3)));
    shown.texts.commit({1, sample}, {texts[sample].back()});
  }
  for (int step = 0; step < 300; ++step) {
    const Path& text = texts[random.below(3)];
    const size_t length = 1 + random.below(18);
    const size_t start = random.below(text.size() - length);
    const std::span<const int32_t> run = std::span(text).subspan(start, length);
    int64_t occurrences = 0;
    for (const Path& other : texts)
      for (size_t at = 0; at + std::max<size_t>(length, 2) <= other.size(); ++at)
        occurrences += std::equal(run.begin(), run.end(), other.begin() + static_cast<long>(at));
    NgramTrie::Node node = NgramTrie::kRoot;
    for (const int32_t token : run) node = shown.drafter.trie().find_child(node, token);
    ASSERT_EQ(shown.drafter.trie().occurrences(node), occurrences) << "step " << step;
  }
}

TEST(NgramDrafterTest, TreesObeyTheStrategy) {
  ShownNgrams shown;
  RandomStream random(/*seed=*/7, {});
  shown.texts.begin({1, 0}, {});
  for (int step = 0; step < 1000; ++step) {
    shown.texts.commit({1, 0}, Path{static_cast<int32_t>(random.below(5))});
    const Strategy strategy{static_cast<int64_t>(1 + random.below(4)),
                            static_cast<int64_t>(1 + random.below(3)),
                            static_cast<int64_t>(1 + random.below(30))};
    const DraftTree tree = shown.texts.draft({1, 0}, strategy);
    ASSERT_LT(tree.size(), strategy.verify) << step;
    std::map<int32_t, int64_t> children;
    std::map<int32_t, std::set<int32_t>> parents;  // by depth
    for (const DraftNode& node : tree.nodes()) {
      ASSERT_LE(node.depth, strategy.depth) << step;
      ASSERT_LE(++children[node.parent], strategy.width) << step;
      parents[node.depth].insert(node.parent);
      ASSERT_LE(std::ssize(parents[node.depth]), strategy.width) << step;
    }
  }
  EXPECT_TRUE(shown.texts.draft({1, 0}, kOff).empty());
}

// FastRL's strategy: 12 tokens to verify; depth and width are no limit.
constexpr Strategy kNgramStrategy{.depth = 18, .width = 11, .verify = 12};

TEST(NgramDrafterTest, SharesNgramsBetweenPrompts) {
  ShownNgrams shown;
  shown.texts.begin({1, 0}, Path{1, 2, 3});
  shown.texts.commit({1, 0}, Path{4, 5, 6});
  shown.texts.end({1, 0});
  shown.texts.begin({2, 0}, Path{9, 3});
  const std::vector<Path> got = paths_in_order(shown.texts.draft({2, 0}, kNgramStrategy));
  EXPECT_EQ(got, (std::vector<Path>{{4}, {4, 5}, {4, 5, 6}}));
}

TEST(NgramDrafterTest, UnseenResponsesAreReadBeforeProposing) {
  ShownNgrams shown({.nodes = 1000});
  shown.drafter.end({1, 0}, Path{3, 4, 5, 6});
  EXPECT_EQ(shown.drafter.trie().nodes(), 0);
  shown.texts.begin({2, 0}, Path{9, 3});
  EXPECT_EQ(paths_in_order(shown.texts.draft({2, 0}, kNgramStrategy)),
            (std::vector<Path>{{4}, {4, 5}, {4, 5, 6}}));
  const int64_t bytes = shown.drafter.memory_bytes();
  for (uint32_t sample = 0; sample < 100; ++sample)
    shown.drafter.end({3, sample}, Path(20, static_cast<int32_t>(sample)));
  EXPECT_LE(shown.drafter.memory_bytes(), bytes + 60 * 4) << "as many as 1,000 nodes hold";
  shown.texts.commit({2, 0}, Path{99});
  EXPECT_EQ(paths_in_order(shown.texts.draft({2, 0}, {1, 1, 2})), (std::vector<Path>{{99}}));
}

TEST(NgramDrafterTest, PoolIsBoundedAndKeepsTheNewest) {
  ShownNgrams shown({.nodes = 2000});
  RandomStream random(/*seed=*/9, {});
  for (uint32_t sample = 0; sample < 300; ++sample) shown.texts.begin({1, sample}, Path{1});
  for (int step = 0; step < 3000; ++step)
    shown.texts.commit({1, static_cast<uint32_t>(random.below(300))},
                       Path{static_cast<int32_t>(random.below(50))});
  EXPECT_EQ(shown.drafter.trie().nodes(), 2000);
  shown.drafter.trie().check();
  const int64_t full = shown.drafter.memory_bytes();
  for (int32_t i = 0; i < 40; ++i) shown.texts.commit({1, 7}, Path{1000 + i});
  shown.texts.commit({1, 7}, Path{1030});
  EXPECT_EQ(paths_in_order(shown.texts.draft({1, 7}, {3, 1, 4})).back(), (Path{1031, 1032, 1033}));
  EXPECT_EQ(shown.drafter.memory_bytes(), full);
}

TEST(NgramDrafterTest, ShrinkingResponseThrows) {
  ShownNgrams shown;
  shown.texts.begin({1, 0}, Path{1});
  shown.texts.commit({1, 0}, Path{1, 2});
  EXPECT_THROW(shown.texts.begin({1, 0}, Path{1}), Error);
}

TEST(NgramOptionsTest, ContradictoryValuesThrow) {
  EXPECT_NO_THROW(NgramOptions().check());
  for (const NgramOptions& wrong : std::vector<NgramOptions>{{.branch_length = 1},
                                                             {.branch_length = 12},
                                                             {.min_window = 13},
                                                             {.min_window = 0},
                                                             {.max_breadth = 3, .min_breadth = 4},
                                                             {.min_breadth = 0},
                                                             {.nodes = 10}})
    EXPECT_THROW(NgramDrafter drafter(wrong), Error);
}

}  // namespace
}  // namespace tlt::drafter

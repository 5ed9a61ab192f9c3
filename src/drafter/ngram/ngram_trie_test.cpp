// SPDX-License-Identifier: Apache-2.0
#include "drafter/ngram/ngram_trie.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/random.h"

namespace tlt::drafter {
namespace {

using Path = std::vector<int32_t>;

Path child_of(Path path, int32_t token) {
  path.push_back(token);
  return path;
}

// Reference: the trie's rules on explicit paths. A cursor is a path and the life it was visited in.
struct SlowTrie {
  struct Run {
    int64_t occurrences = 0;
    int64_t visited = 0;
    int64_t made = 0;
  };
  struct Cursor {
    Path path;
    int64_t made = 0;
  };

  explicit SlowTrie(size_t most_runs) : most(most_runs) {}

  size_t most;
  std::map<Path, Run> runs;
  std::list<Path> order = {{}};  // eviction order, the root first
  int64_t now = 0;

  bool is_there(const Cursor& cursor) const {
    return cursor.path.empty() ||
           (runs.contains(cursor.path) && runs.at(cursor.path).made == cursor.made);
  }
  std::optional<Cursor> visit(const Cursor& parent, int32_t token) {
    ++now;
    if (!is_there(parent)) return std::nullopt;
    const Path path = child_of(parent.path, token);
    if (runs.contains(path)) {
      order.remove(path);
    } else {
      if (runs.size() == most) {
        if (order.back() == parent.path) return std::nullopt;
        runs.erase(order.back());
        order.pop_back();
      }
      runs[path].made = now;
    }
    order.insert(std::next(std::ranges::find(order, parent.path)), path);
    ++runs[path].occurrences;
    runs[path].visited = now;
    return Cursor{path, runs[path].made};
  }
  std::vector<Path> children(const Path& parent) const {  // newest first
    std::vector<Path> found;
    for (const auto& [path, run] : runs)
      if (path.size() == parent.size() + 1 &&
          std::equal(parent.begin(), parent.end(), path.begin()))
        found.push_back(path);
    std::ranges::sort(found, std::greater<>(), [&](const Path& p) { return runs.at(p).visited; });
    return found;
  }
};

NgramTrie::Node find(const NgramTrie& trie, const Path& path) {
  NgramTrie::Node node = NgramTrie::kRoot;
  for (const int32_t token : path)
    if (node != NgramTrie::kNone) node = trie.find_child(node, token);
  return node;
}

void expect_same(const NgramTrie& trie, const SlowTrie& slow) {
  trie.check();
  ASSERT_EQ(trie.nodes(), std::ssize(slow.runs));
  std::vector<Path> parents = {{}};
  for (const auto& [path, run] : slow.runs) {
    const NgramTrie::Node node = find(trie, path);
    ASSERT_NE(node, NgramTrie::kNone);
    ASSERT_EQ(trie.token(node), path.back());
    ASSERT_EQ(trie.occurrences(node), run.occurrences);
    parents.push_back(path);
  }
  for (const Path& parent : parents) {
    std::vector<Path> children;
    for (NgramTrie::Node child = trie.newest_child(find(trie, parent)); child != NgramTrie::kNone;
         child = trie.older_sibling(child))
      children.push_back(child_of(parent, trie.token(child)));
    ASSERT_EQ(children, slow.children(parent));
  }
}

void random_walk(uint64_t seed, int64_t most_nodes, int steps) {
  NgramTrie trie(most_nodes);
  SlowTrie slow(static_cast<size_t>(most_nodes));
  RandomStream random(seed, {});
  std::vector<std::pair<NgramTrie::Cursor, SlowTrie::Cursor>> cursors(
      6, {trie.root(), SlowTrie::Cursor()});
  for (int step = 0; step < steps; ++step) {
    auto& [cursor, slow_cursor] = cursors[random.below(cursors.size())];
    if (random.below(8) == 0) {
      cursor = trie.root();
      slow_cursor = {};
    }
    const auto token = static_cast<int32_t>(random.below(4));
    cursor = trie.visit(cursor, token);
    const auto want = slow.visit(slow_cursor, token);
    ASSERT_EQ(cursor.node != NgramTrie::kNone, want.has_value())
        << "seed " << seed << ", step " << step;
    if (!want) cursor = trie.root();
    slow_cursor = want.value_or(SlowTrie::Cursor());
    if (step % 100 != 0) continue;
    ASSERT_NO_FATAL_FAILURE(expect_same(trie, slow)) << "seed " << seed << ", step " << step;
  }
  ASSERT_NO_FATAL_FAILURE(expect_same(trie, slow)) << "seed " << seed;
}

TEST(NgramTrieTest, RandomWalkMatchesTheReference) {
  random_walk(/*seed=*/1, /*most_nodes=*/100000, /*steps=*/1000);
}

TEST(NgramTrieTest, SmallPoolRandomWalkMatchesTheReference) {
  for (uint64_t seed = 0; seed < 5; ++seed)
    random_walk(seed, static_cast<int64_t>(1 + 10 * seed), /*steps=*/1000);
}

TEST(NgramTrieTest, FullPoolKeepsTheNewestNgrams) {
  NgramTrie trie(/*most_nodes=*/5000);
  const auto enter = [&](int32_t from, int32_t to) {
    for (int32_t start = from; start < to; ++start) {
      NgramTrie::Cursor cursor = trie.root();
      for (int32_t i = 0; i < 4; ++i) cursor = trie.visit(cursor, start * 7 + i);
      ASSERT_TRUE(trie.is_there(cursor)) << "start " << start;
    }
  };
  enter(0, 10000);
  EXPECT_EQ(trie.nodes(), 5000);
  trie.check();
  EXPECT_NE(find(trie, {9999 * 7, 9999 * 7 + 1, 9999 * 7 + 2, 9999 * 7 + 3}), NgramTrie::kNone);
  EXPECT_NE(find(trie, {9000 * 7, 9000 * 7 + 1}), NgramTrie::kNone);
  EXPECT_EQ(find(trie, {8000 * 7}), NgramTrie::kNone);
  const int64_t full = trie.memory_bytes();
  EXPECT_LT(full, 5000 * 120);
  enter(10000, 20000);
  EXPECT_EQ(trie.memory_bytes(), full);
}

TEST(NgramTrieTest, CursorExpiresWithItsNode) {
  NgramTrie trie(/*most_nodes=*/2);
  const NgramTrie::Cursor first = trie.visit(trie.root(), 1);
  EXPECT_NE(trie.visit(first, 2).node, NgramTrie::kNone);
  trie.visit(trie.root(), 3);  // takes the place of {1, 2}
  trie.visit(trie.root(), 4);  // takes the place of {1}
  EXPECT_EQ(trie.visit(first, 5).node, NgramTrie::kNone);
  EXPECT_EQ(trie.visit(NgramTrie::Cursor(), 5).node, NgramTrie::kNone);
  EXPECT_THROW(NgramTrie(0), Error);
}

}  // namespace
}  // namespace tlt::drafter

// SPDX-License-Identifier: Apache-2.0
#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace tlt::kv {
namespace {

std::vector<int32_t> page_of(int32_t token) { return std::vector<int32_t>(ops::kPageSlots, token); }

TEST(PrefixCacheTest, PageIsFoundAfterItsPrefixOnly) {
  PagePool pool(4);
  PrefixCache cache(pool);
  const PageId first = pool.try_take().value(), second = pool.try_take().value();
  const auto one = cache.insert(PrefixCache::kEmpty, page_of(7), first);
  const auto two = cache.insert(one.prefix, page_of(8), second);
  EXPECT_EQ(cache.find(PrefixCache::kEmpty, page_of(7))->page, first);
  EXPECT_EQ(cache.find(one.prefix, page_of(8))->page, second);
  EXPECT_EQ(cache.find(one.prefix, page_of(8))->prefix, two.prefix);
  EXPECT_FALSE(cache.find(PrefixCache::kEmpty, page_of(8))) << "the same tokens at the start";
  EXPECT_FALSE(cache.find(two.prefix, page_of(8)));
  EXPECT_FALSE(cache.find(one.prefix, page_of(9)));
  auto almost = page_of(8);
  almost.back() = 9;
  EXPECT_FALSE(cache.find(one.prefix, almost));
  cache.check_invariants();
}

TEST(PrefixCacheTest, SamePageOfAnotherSequenceIsNotAddedAgain) {
  PagePool pool(4);
  PrefixCache cache(pool);
  const PageId first = pool.try_take().value(), again = pool.try_take().value();
  const auto one = cache.insert(PrefixCache::kEmpty, page_of(7), first);
  const auto two = cache.insert(PrefixCache::kEmpty, page_of(7), again);
  EXPECT_EQ(two.page, first);
  EXPECT_EQ(two.prefix, one.prefix);
  EXPECT_FALSE(pool.is_kept(again));
}

// A hash on which everything collides costs time only.
TEST(PrefixCacheTest, CollidingHashesFindTheRightPages) {
  PagePool pool(60);
  PrefixCache cache(pool, [](const PrefixCache::Key&) { return size_t{5}; });
  std::map<int32_t, std::pair<PageId, PageId>> pages;
  for (int32_t token = 0; token < 30; ++token) {
    const PageId first = pool.try_take().value(), second = pool.try_take().value();
    const auto one = cache.insert(PrefixCache::kEmpty, page_of(token), first);
    cache.insert(one.prefix, page_of(99), second);
    pages[token] = {first, second};
  }
  for (const auto& [token, want] : pages) {
    const auto one = cache.find(PrefixCache::kEmpty, page_of(token));
    ASSERT_TRUE(one);
    EXPECT_EQ(one->page, want.first);
    EXPECT_EQ(cache.find(one->prefix, page_of(99))->page, want.second) << "of this prefix";
  }
  cache.check_invariants();
}

TEST(PrefixCacheTest, ReleasedPagesStayUntilTheMemoryIsNeeded) {
  PagePool pool(3);
  PrefixCache cache(pool);
  const PageId first = pool.try_take().value(), second = pool.try_take().value();
  const auto one = cache.insert(PrefixCache::kEmpty, page_of(1), first);
  cache.insert(one.prefix, page_of(2), second);
  pool.release(second);
  pool.release(first);
  EXPECT_EQ(pool.free_pages(), 3) << "kept pages are free";
  EXPECT_EQ(pool.kept_free_pages(), 2);
  EXPECT_EQ(pool.try_take(), 2) << "the page without contents first";
  EXPECT_EQ(pool.try_take(), second) << "then the one released first";
  EXPECT_FALSE(cache.find(one.prefix, page_of(2)));
  EXPECT_EQ(cache.find(PrefixCache::kEmpty, page_of(1))->page, first);
  pool.share(first);
  EXPECT_EQ(pool.free_pages(), 0);
  EXPECT_EQ(pool.try_take(), std::nullopt) << "held again";
  cache.check_invariants();
}

TEST(PrefixCacheTest, NewWeightsEmptyIt) {
  PagePool pool(2);
  PrefixCache cache(pool);
  const PageId page = pool.try_take().value();
  const auto one = cache.insert(PrefixCache::kEmpty, page_of(1), page);
  pool.release(page);
  cache.clear();
  EXPECT_FALSE(cache.find(PrefixCache::kEmpty, page_of(1)));
  EXPECT_EQ(pool.kept_free_pages(), 0);
  const auto next = cache.insert(PrefixCache::kEmpty, page_of(1), pool.try_take().value());
  EXPECT_NE(next.prefix, one.prefix) << "prefixes of different weights";
  cache.check_invariants();
}

TEST(PrefixCacheTest, PageWithoutItsPrefixIsNoticed) {
  PagePool pool(3);
  PrefixCache cache(pool);
  const PageId first = pool.try_take().value(), second = pool.try_take().value();
  const auto one = cache.insert(PrefixCache::kEmpty, page_of(1), first);
  cache.insert(one.prefix, page_of(2), second);
  pool.release(first);
  EXPECT_THROW(cache.check_invariants(), Error) << "held without its prefix";
  pool.release(second);
  cache.check_invariants();
  pool.forget(first);
  EXPECT_THROW(cache.check_invariants(), Error) << "kept without its prefix";
}

// Sequences that begin, grow and end at random over few different tokens, against a plain map from
// all tokens up to the end of a page to the page, which forgets as the pool takes pages.
TEST(PrefixCacheTest, RandomWalkMatchesReference) {
  constexpr int64_t kPages = 23;
  struct Walker {
    std::vector<int32_t> tokens;  // one for each page
    std::vector<PageId> pages;
    PrefixId prefix = PrefixCache::kEmpty;
  };
  PagePool pool(kPages);
  // Few hashes, so that many keys share one.
  PrefixCache cache(pool,
                    [](const PrefixCache::Key& key) { return PrefixCache::hash_of(key) % 3; });
  std::map<std::vector<int32_t>, PageId> reference;
  std::vector<Walker> walkers;
  RandomStream random(/*seed=*/8, {});
  int64_t hits = 0, misses = 0, taken = 0;
  const auto end = [&](size_t i) {
    for (auto& pages = walkers[i].pages; !pages.empty(); pages.pop_back())
      pool.release(pages.back());
    walkers.erase(walkers.begin() + static_cast<long>(i));
  };
  for (int step = 0; step < 20000; ++step) {
    if (random.below(400) == 0) {
      while (!walkers.empty()) end(0);
      cache.clear();
      reference.clear();
    }
    if (walkers.empty() || random.below(4) == 0) walkers.emplace_back();
    const size_t index = random.below(walkers.size());
    if (random.below(5) == 0) {
      end(index);
      continue;
    }
    Walker& walker = walkers[index];
    const auto token = static_cast<int32_t>(random.below(3));
    walker.tokens.push_back(token);
    const auto found = cache.find(walker.prefix, page_of(token));
    const auto want = reference.find(walker.tokens);
    ASSERT_EQ(found.has_value(), want != reference.end()) << "step " << step;
    if (found) {
      ASSERT_EQ(found->page, want->second) << "step " << step;
      pool.share(found->page);
      walker.pages.push_back(found->page);
      walker.prefix = found->prefix;
      ++hits;
    } else if (const auto page = pool.try_take()) {
      std::erase_if(reference, [&](const auto& entry) { return entry.second == *page; });
      const auto added = cache.insert(walker.prefix, page_of(token), *page);
      ASSERT_EQ(added.page, *page) << "step " << step;
      reference[walker.tokens] = *page;
      walker.pages.push_back(*page);
      walker.prefix = added.prefix;
      ++misses;
    } else {
      ++taken;
      end(index);
    }
    if (step % 50 == 0) cache.check_invariants();
  }
  EXPECT_GT(hits, 1000);
  EXPECT_GT(misses, 1000);
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace tlt::kv

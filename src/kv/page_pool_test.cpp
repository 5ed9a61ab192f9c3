// SPDX-License-Identifier: Apache-2.0
#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <map>

#include "base/check.h"
#include "base/random.h"

namespace tlt::kv {
namespace {

TEST(PagePoolTest, EmptyPoolReturnsNulloptNotAnError) {
  PagePool none(0);
  EXPECT_EQ(none.try_take(), std::nullopt);
  PagePool pool(1);
  EXPECT_EQ(pool.try_take(), 0);
  EXPECT_EQ(pool.try_take(), std::nullopt);
}

TEST(PagePoolTest, SharedPageIsFreeAfterLastRelease) {
  PagePool pool(4);
  const PageId page = pool.try_take().value();
  pool.share(page);
  pool.release(page);
  EXPECT_EQ(pool.holders(page), 1);
  EXPECT_EQ(pool.free_pages(), 3);
  pool.release(page);
  EXPECT_EQ(pool.holders(page), 0);
  EXPECT_EQ(pool.free_pages(), 4);
}

TEST(PagePoolTest, LastFreedPageIsTakenFirst) {
  PagePool pool(8);
  const PageId first = pool.try_take().value();
  const PageId second = pool.try_take().value();
  pool.release(first);
  pool.release(second);
  EXPECT_EQ(pool.try_take(), second);
  EXPECT_EQ(pool.try_take(), first);
}

TEST(PagePoolTest, ReleaseAndShareOfFreePageThrow) {
  PagePool pool(2);
  EXPECT_THROW(pool.release(0), Error);
  EXPECT_THROW(pool.share(1), Error);
  EXPECT_EQ(pool.free_pages(), 2);
}

TEST(PagePoolTest, PageIdOutOfRangeThrows) {
  PagePool pool(2);
  EXPECT_THROW(pool.holders(2), Error);
  EXPECT_THROW(pool.release(-1), Error);
  EXPECT_THROW(PagePool(-1), Error);
}

TEST(PagePoolTest, KeptPagesAreFreeAndTakenLastOldestFirst) {
  PagePool pool(4);
  std::vector<PageId> pages;
  while (const auto page = pool.try_take()) pages.push_back(*page);
  for (const PageId page : {pages[2], pages[0], pages[3]}) pool.keep(page);
  for (const PageId page : {pages[3], pages[1], pages[0], pages[2]}) pool.release(page);
  EXPECT_EQ(pool.free_pages(), 4);
  EXPECT_EQ(pool.kept_free_pages(), 3);
  pool.share(pages[3]);  // used again: now the latest
  pool.release(pages[3]);
  for (const PageId page : {pages[1], pages[0], pages[2], pages[3]}) {
    EXPECT_EQ(pool.try_take(), page);
    EXPECT_FALSE(pool.is_kept(page));
  }
  EXPECT_EQ(pool.try_take(), std::nullopt);
}

TEST(PagePoolTest, ForgottenPageIsLikeAnyOther) {
  PagePool pool(2);
  const PageId page = pool.try_take().value();
  pool.keep(page);
  pool.release(page);
  pool.forget(page);
  EXPECT_EQ(pool.kept_free_pages(), 0);
  EXPECT_EQ(pool.free_pages(), 2);
  EXPECT_THROW(pool.share(page), Error);
  EXPECT_THROW(pool.keep(page), Error) << "of a free page";
  const PageId held = pool.try_take().value();
  pool.keep(held);
  pool.forget(held);
  pool.release(held);
  EXPECT_EQ(pool.kept_free_pages(), 0);
}

TEST(PagePoolTest, RandomWalkMatchesReference) {
  constexpr int64_t kPages = 37;
  PagePool pool(kPages);
  std::map<PageId, int64_t> held;
  RandomStream random(/*seed=*/5, {});
  const auto any_held = [&] {
    return std::next(held.begin(), static_cast<long>(random.below(held.size())))->first;
  };
  for (int step = 0; step < 20000; ++step) {
    switch (random.below(3)) {
      case 0:
        if (const auto page = pool.try_take()) {
          ASSERT_TRUE(held.emplace(*page, 1).second)
              << "step " << step << ": page " << *page << " taken twice";
        } else {
          ASSERT_EQ(std::ssize(held), kPages) << "step " << step;
        }
        break;
      case 1:
        if (held.empty()) break;
        if (const PageId page = any_held(); random.below(2) == 0) {
          pool.share(page);
          ++held[page];
        }
        break;
      default:
        if (held.empty()) break;
        const PageId page = any_held();
        pool.release(page);
        if (--held[page] == 0) held.erase(page);
    }
    ASSERT_EQ(pool.free_pages() + std::ssize(held), kPages) << "step " << step;
    if (step % 100 != 0) continue;
    for (PageId page = 0; page < kPages; ++page)
      ASSERT_EQ(pool.holders(page), held.contains(page) ? held[page] : 0)
          << "step " << step << ", page " << page;
  }
}

}  // namespace
}  // namespace tlt::kv

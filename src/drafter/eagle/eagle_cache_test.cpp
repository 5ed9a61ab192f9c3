// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/eagle_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "base/check.h"
#include "base/random.h"

namespace tlt::drafter {
namespace {

constexpr kv::KvShape kShape{.layers = 1, .kv_heads = 1, .head_size = 16, .type = at::kFloat};

class EagleCacheTest : public ::testing::Test {
 protected:
  static EagleCache make(int64_t pages) {
    return EagleCache(Device::cpu(1), kShape, pages * kShape.page_bytes());
  }
};

TEST_F(EagleCacheTest, MemoryForLessThanAPageIsRefused) {
  EXPECT_THROW(EagleCache(Device::cpu(1), kShape, kShape.page_bytes() - 1), InputError);
}

TEST_F(EagleCacheTest, LeastRecentlyUsedContextIsEvicted) {
  EagleCache cache = make(4);
  EagleContext a, b, c;
  for (EagleContext* context : {&a, &b, &c}) {
    cache.remember(context);
    cache.begin_step();
    cache.ask(*context);
    ASSERT_TRUE(cache.try_reserve(*context, 16));
    context->read = context->origin + 16;
  }
  cache.begin_step();
  cache.ask(a);
  ASSERT_TRUE(cache.try_reserve(a, 48));
  EXPECT_TRUE(b.pages.empty());
  EXPECT_EQ(b.positions(), 0);
  EXPECT_EQ(c.pages.size(), 1);
  cache.ask(c);
  EXPECT_FALSE(cache.try_reserve(a, 64)) << "c is used in the same step";
  EXPECT_EQ(c.positions(), 16);
  for (EagleContext* context : {&a, &b, &c}) cache.forget(context);
  EXPECT_EQ(cache.pool().free_pages(), 4);
}

TEST_F(EagleCacheTest, LanesTakeAllTheirPagesOrNone) {
  for (int64_t pages = 2; pages < 9; ++pages) {
    EagleCache cache = make(pages);
    EagleContext context;
    cache.remember(&context);
    cache.begin_step();
    cache.ask(context);
    ASSERT_TRUE(cache.try_reserve(context, 30));
    EagleLanes lanes;
    // For each of three more lanes: the page at 16 is partly filled, and no page after it.
    const bool fits = lanes.try_start(cache, context, /*base=*/20, /*width=*/4, /*levels=*/10);
    EXPECT_EQ(fits, pages >= 2 + EagleLanes::pages_needed(20, 4, 10)) << pages;
    if (fits) lanes.finish(cache);
    EXPECT_EQ(cache.pool().free_pages(), pages - 2);
    cache.forget(&context);
  }
}

// Marks represent keys: a lane must find its context's and its own path's, whatever others write.
TEST_F(EagleCacheTest, LanesReadTheirContextAndOwnPath) {
  RandomStream random(/*seed=*/3, {});
  EagleCache cache = make(200);
  EagleLanes lanes;
  const auto slot = [&](kv::PageId page, int64_t position) -> float& {
    return cache.kv_cache()
        .layer(0)
        .storage.data_ptr<float>()[page * 2 * 16 * 16 + position % ops::kPageSlots];
  };
  for (int round = 0; round < 300; ++round) {
    const auto base = static_cast<int64_t>(1 + random.below(70)),
               width = static_cast<int64_t>(1 + random.below(6)),
               levels = static_cast<int64_t>(random.below(40));
    EagleContext context;
    cache.remember(&context);
    cache.begin_step();
    cache.ask(context);
    ASSERT_TRUE(cache.try_reserve(context, base + levels));
    ASSERT_TRUE(lanes.try_start(cache, context, base, width, levels));
    for (int64_t i = 0; i < base; ++i)
      slot(context.pages[static_cast<size_t>(i / ops::kPageSlots)], i) = static_cast<float>(-i);
    std::vector<std::vector<float>> paths(1);  // by lane
    for (int64_t level = 0; level < levels; ++level) {
      std::vector<int32_t> parents;
      std::vector<std::vector<float>> next;
      const auto count = static_cast<int64_t>(1 + random.below(static_cast<uint64_t>(width)));
      while (std::ssize(parents) < count) {
        parents.push_back(static_cast<int32_t>(random.below(paths.size())));
        next.push_back(paths[static_cast<size_t>(parents.back())]);
      }
      lanes.move(cache, parents, /*written=*/level);
      paths.swap(next);
      for (size_t lane = 0; lane < paths.size(); ++lane) {
        paths[lane].push_back(static_cast<float>(1 + random.below(1000000)));
        const int64_t position = base + level;
        slot(lanes.table(static_cast<int64_t>(lane))[position / ops::kPageSlots], position) =
            paths[lane].back();
      }
      for (size_t lane = 0; lane < paths.size(); ++lane) {
        const kv::PageId* table = lanes.table(static_cast<int64_t>(lane));
        for (int64_t i = 0; i <= base + level; ++i)
          ASSERT_EQ(slot(table[i / ops::kPageSlots], i),
                    i < base ? static_cast<float>(-i) : paths[lane][static_cast<size_t>(i - base)])
              << "round " << round << ", lane " << lane << " at " << i << " of " << base;
      }
    }
    lanes.finish(cache);
    for (int64_t i = 0; i < base; ++i)
      ASSERT_EQ(slot(context.pages[static_cast<size_t>(i / ops::kPageSlots)], i),
                static_cast<float>(-i));
    cache.forget(&context);
    ASSERT_EQ(cache.pool().free_pages(), cache.pool().total_pages());
  }
}

}  // namespace
}  // namespace tlt::drafter

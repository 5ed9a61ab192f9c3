// EagleCache: the KV cache of an EAGLE draft model: a context per sequence, and while a beam is
// drafted a tail after it for each of its lanes.
//
// When the memory is full, the least recently used context is evicted. Contexts used in the current
// step are never evicted: if no other remains, the caller gets no pages.
//
// Owns       one layer's pages and their reference counts.
// Not here   the pairs that contexts contain (eagle_drafter.h).
// Threading  engine thread only; no locks.
// Invariant  between steps every page is free or belongs to one context or several that share it.
//
//   cache.begin_step();
//   cache.ask(context);
//   if (cache.try_reserve(context, positions)) …
//   if (lanes.try_start(cache, context, base, width, levels)) {
//     … a pass over the lanes' rows, with lanes.table(lane) as their pages …
//     lanes.move(cache, parents, /*written=*/1);   // then the next level's lanes
//     lanes.finish(cache);
//   }
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/kv_cache.h"
#include "kv/page_pool.h"

namespace tlt::drafter {

// The context of a sequence or prompt: its pairs `origin` .. `read` - 1 have been read, at the
// positions 0, 1, …
struct EagleContext {
  int64_t origin = 0;
  int64_t read = 0;
  std::vector<kv::PageId> pages;
  int64_t asked = 0;  // the last step that used it

  int64_t positions() const { return read - origin; }
};

class EagleCache {
 public:
  // InputError when the memory is less than a page.
  EagleCache(const Device& device, const kv::KvShape& shape, int64_t memory_bytes);

  kv::KvCache& kv_cache() { return kv_cache_; }
  const kv::PagePool& pool() const { return pool_; }
  int64_t memory_bytes() const;

  // Registers a context that may own pages, until forget(), which releases them.
  void remember(EagleContext* context);
  void forget(EagleContext* context);

  void begin_step() { ++step_; }
  void ask(EagleContext& context) const { context.asked = step_; }

  // Allocates pages for this many positions; keeps what it got when there are not enough.
  [[nodiscard]] bool try_reserve(EagleContext& context, int64_t positions);
  // Appends a page that another context owns too; it is read-only.
  void share(EagleContext& context, kv::PageId page);
  // Releases the pages: no pair counts as read.
  void release(EagleContext& context);

 private:
  friend class EagleLanes;

  [[nodiscard]] std::optional<kv::PageId> try_take();
  bool try_evict();

  kv::KvCache kv_cache_;
  kv::PagePool pool_;
  int64_t step_ = 0;
  std::vector<EagleContext*> contexts_;
};

// The page tables of a beam's lanes: a lane reads its context and after it the nodes on its own
// path, and no others (EAGLE-2). The first set of pages is the context's own, whose free slots
// serve as scratch.
class EagleLanes {
 public:
  // Starts one lane, to become up to `width` lanes of up to `levels` positions after the first
  // `base` positions of the context. False, and nothing allocated, when there are not enough pages.
  // REQUIRES: the context has pages for base + levels positions.
  [[nodiscard]] bool try_start(EagleCache& cache, const EagleContext& context, int64_t base,
                               int64_t width, int64_t levels);
  // Moves to the next level: lane i continues lane parents[i], whose tail has `written` positions.
  // One child of a lane takes over its pages, the others get copies.
  void move(EagleCache& cache, std::span<const int32_t> parents, int64_t written);
  const kv::PageId* table(int64_t lane) const {
    return pages_.data() + set_of_lane_[static_cast<size_t>(lane)] * table_pages_;
  }
  void finish(EagleCache& cache);

  // Pages needed in addition to the context's.
  static int64_t pages_needed(int64_t base, int64_t width, int64_t levels);

 private:
  kv::PageId& page(int64_t set, int64_t index) {
    return pages_[static_cast<size_t>(set * table_pages_ + index)];
  }

  int64_t base_ = 0, table_pages_ = 0, sets_ = 0;
  std::vector<kv::PageId> pages_;  // [sets, table pages]; sets after the first own their pages
                                   // from the base's page on
  std::vector<int64_t> set_of_lane_, next_set_of_lane_;
  std::vector<ops::PageCopy> copies_;  // scratch
  std::vector<bool> is_used_;          // by set
};

}  // namespace tlt::drafter

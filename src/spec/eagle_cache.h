// EagleCache: the keys and values of an EAGLE drafter: a context for each sequence, and while a
// beam is drafted a tail behind it for each of its lanes.
//
// When the memory is used up, the context that was not asked for longest gives its pages back. One
// that is asked in the same step never does: then the caller gets no pages, which is an answer.
//
// Owns       one layer's pages, and who holds them.
// Not here   what is read into them (eagle_drafter.h).
// Threading  engine thread only; no locks.
// Invariant  between steps every page is free or a context's, or of several that share it.
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

namespace tlt::spec {

// Of one sequence or prompt: its pairs `origin` .. `read` - 1 have been read, at the positions 0,
// 1, …
struct EagleContext {
  int64_t origin = 0;
  int64_t read = 0;
  std::vector<kv::PageId> pages;
  int64_t asked = 0;  // the last step

  int64_t positions() const { return read - origin; }
};

class EagleCache {
 public:
  // InputError when the memory does not hold a page.
  EagleCache(const Device& device, const kv::KvShape& shape, int64_t memory_bytes);

  kv::KvCache& keys_values() { return keys_values_; }
  const kv::PagePool& pool() const { return pool_; }
  int64_t memory_bytes() const;

  // A context that may hold pages; until forget(), which gives them back.
  void remember(EagleContext* context);
  void forget(EagleContext* context);

  void begin_step() { ++step_; }
  void ask(EagleContext& context) const { context.asked = step_; }

  // Pages for so many positions; what it got stays when it is not enough.
  [[nodiscard]] bool try_reserve(EagleContext& context, int64_t positions);
  // The context's next page is one that another context holds too; it is only read.
  void share(EagleContext& context, kv::PageId page);
  // Gives the pages back: nothing has been read.
  void release(EagleContext& context);

 private:
  friend class EagleLanes;

  [[nodiscard]] std::optional<kv::PageId> try_take();
  bool try_take_back();

  kv::KvCache keys_values_;
  kv::PagePool pool_;
  int64_t step_ = 0;
  std::vector<EagleContext*> contexts_;
};

// The page tables of a beam's lanes: each sees its context and behind it the nodes on its own path,
// nobody else's (EAGLE-2). The first set of pages is the context's own, whose free slots it uses
// as scratch.
class EagleLanes {
 public:
  // One lane, for up to `width` of them that add up to `levels` positions behind the `base` of the
  // context. False, and nothing taken, when there are no pages for them.
  // REQUIRES: the context has pages for base + levels positions.
  [[nodiscard]] bool try_start(EagleCache& cache, const EagleContext& context, int64_t base,
                               int64_t width, int64_t levels);
  // The next lanes: lane i continues lane parents[i], whose tail has `written` positions. One child
  // of a lane takes its pages over, the others get copies of what they may see.
  void move(EagleCache& cache, std::span<const int32_t> parents, int64_t written);
  const kv::PageId* table(int64_t lane) const {
    return pages_.data() + set_of_lane_[static_cast<size_t>(lane)] * table_pages_;
  }
  void finish(EagleCache& cache);

  // Pages needed beside the context's.
  static int64_t pages_needed(int64_t base, int64_t width, int64_t levels);

 private:
  kv::PageId& page(int64_t set, int64_t index) {
    return pages_[static_cast<size_t>(set * table_pages_ + index)];
  }

  int64_t base_ = 0, table_pages_ = 0, sets_ = 0;
  std::vector<kv::PageId> pages_;  // [sets, table pages]; of a set but the first, those from the
                                   // base's on are its own
  std::vector<int64_t> set_of_lane_, next_set_of_lane_;
  std::vector<bool> is_used_;  // by set
};

}  // namespace tlt::spec

// PagePool: hands out the fixed-size pages of the KV cache and counts who shares each page.
//
// A page may be kept: after its last release it is free like any other, but its contents stay until
// no other page is free, and share() makes it held again. So kept pages cost no memory.
//
// Owns       which pages are free or kept, and the number of holders of each page.
// Not here   the tensors (kv/kv_cache.h); the pages of one sequence (rollout/sequence.h); what the
//            contents of kept pages are (kv/prefix_cache.h).
// Threading  engine thread only; no locks.
// Invariant  free_pages() + (pages with a holder) == total_pages().
//
//   PagePool pool(/*total_pages=*/4);
//   if (auto page = pool.try_take()) {   // nullopt when empty: the scheduler waits or preempts
//     pool.share(*page);                 // a second sequence with the same prefix
//     pool.release(*page);
//     pool.release(*page);               // last holder: the page is free again
//   }
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "ops/batch.h"

namespace tlt::kv {

using ops::PageId;

class PagePool {
 public:
  explicit PagePool(int64_t total_pages);

  int64_t total_pages() const { return std::ssize(pages_); }
  int64_t free_pages() const { return std::ssize(free_) + kept_free_pages(); }
  // The part of free_pages() that is kept.
  int64_t kept_free_pages() const { return std::ssize(kept_free_); }

  // Takes a free page with one holder. Last-freed page first, so hot pages are reused; when all
  // free pages are kept, the one that was released first, which is kept no longer.
  [[nodiscard]] std::optional<PageId> try_take();

  // Adds a holder. REQUIRES: the page has a holder or is kept.
  void share(PageId page);

  // Marks the page as kept, until try_take() takes it or forget(). REQUIRES: it has a holder.
  void keep(PageId page);
  void forget(PageId page);
  bool is_kept(PageId page) const { return pages_[checked(page)].is_kept; }

  // Drops a holder. REQUIRES: the page has a holder.
  void release(PageId page);

  // Number of holders of the page; 0 when it is free.
  int64_t holders(PageId page) const { return pages_[checked(page)].holders; }

 private:
  struct Page {
    int32_t holders = 0;
    bool is_kept = false;
    std::list<PageId>::iterator place = {};  // in kept_free_, if it is there
  };

  size_t checked(PageId page) const;

  std::vector<Page> pages_;      // by id
  std::vector<PageId> free_;     // not kept
  std::list<PageId> kept_free_;  // kept, without a holder; in the order of their release
};

}  // namespace tlt::kv

// PagePool: hands out the fixed-size pages of the KV cache and counts who shares each page.
//
// Owns       which pages are free, and the number of holders of each page.
// Not here   the tensors (kv/kv_cache.h); the pages of one sequence (rollout/sequence.h).
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
#include <optional>
#include <vector>

#include "ops/batch.h"

namespace tlt::kv {

using ops::PageId;

class PagePool {
 public:
  explicit PagePool(int64_t total_pages);

  int64_t total_pages() const { return static_cast<int64_t>(holders_.size()); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }

  // Takes a free page with one holder. Last-freed page first, so hot pages are reused.
  [[nodiscard]] std::optional<PageId> try_take();

  // Adds a holder. REQUIRES: the page has a holder.
  void share(PageId page);

  // Drops a holder. REQUIRES: the page has a holder.
  void release(PageId page);

  // Number of holders of the page; 0 when it is free.
  int64_t holders(PageId page) const;

 private:
  std::vector<int32_t> holders_;  // by page
  std::vector<PageId> free_;
};

}  // namespace tlt::kv

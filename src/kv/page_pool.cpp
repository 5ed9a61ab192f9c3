// SPDX-License-Identifier: Apache-2.0
#include "kv/page_pool.h"

#include "base/check.h"

namespace tlt::kv {

PagePool::PagePool(int64_t total_pages) {
  TLT_CHECK(total_pages >= 0 && total_pages <= INT32_MAX, "total_pages ", total_pages);
  pages_.resize(static_cast<size_t>(total_pages));
  free_.reserve(pages_.size());
  for (int64_t page = total_pages; page-- > 0;) free_.push_back(static_cast<PageId>(page));
}

std::optional<PageId> PagePool::try_take() {
  if (free_.empty()) {
    if (kept_free_.empty()) return std::nullopt;
    forget(kept_free_.front());
  }
  const PageId page = free_.back();
  free_.pop_back();
  pages_[static_cast<size_t>(page)].holders = 1;
  return page;
}

void PagePool::share(PageId id) {
  Page& page = pages_[checked(id)];
  TLT_CHECK(page.holders > 0 || page.is_kept, "share of free page ", id);
  if (page.holders++ == 0) kept_free_.erase(page.place);
}

void PagePool::keep(PageId page) {
  TLT_CHECK(holders(page) > 0, "keep of free page ", page);
  pages_[static_cast<size_t>(page)].is_kept = true;
}

void PagePool::forget(PageId id) {
  Page& page = pages_[checked(id)];
  if (!page.is_kept) return;
  page.is_kept = false;
  if (page.holders > 0) return;
  kept_free_.erase(page.place);
  free_.push_back(id);
}

void PagePool::release(PageId id) {
  Page& page = pages_[checked(id)];
  TLT_CHECK(page.holders > 0, "release of free page ", id);
  if (--page.holders > 0) return;
  if (page.is_kept)
    page.place = kept_free_.insert(kept_free_.end(), id);
  else
    free_.push_back(id);
}

size_t PagePool::checked(PageId page) const {
  TLT_CHECK(page >= 0 && page < total_pages(), "page ", page, " of ", total_pages());
  return static_cast<size_t>(page);
}

}  // namespace tlt::kv

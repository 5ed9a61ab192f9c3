// SPDX-License-Identifier: Apache-2.0
#include "kv/page_pool.h"

#include "base/check.h"

namespace tlt::kv {

PagePool::PagePool(int64_t total_pages) {
  TLT_CHECK(total_pages >= 0 && total_pages <= INT32_MAX, "total_pages ", total_pages);
  holders_.resize(static_cast<size_t>(total_pages));
  free_.reserve(holders_.size());
  for (int64_t page = total_pages; page-- > 0;) free_.push_back(static_cast<PageId>(page));
}

std::optional<PageId> PagePool::try_take() {
  if (free_.empty()) return std::nullopt;
  const PageId page = free_.back();
  free_.pop_back();
  holders_[static_cast<size_t>(page)] = 1;
  return page;
}

void PagePool::share(PageId page) {
  TLT_CHECK(holders(page) > 0, "share of free page ", page);
  ++holders_[static_cast<size_t>(page)];
}

void PagePool::release(PageId page) {
  TLT_CHECK(holders(page) > 0, "release of free page ", page);
  if (--holders_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

int64_t PagePool::holders(PageId page) const {
  TLT_CHECK(page >= 0 && page < total_pages(), "page ", page, " of ", total_pages());
  return holders_[static_cast<size_t>(page)];
}

}  // namespace tlt::kv

// SPDX-License-Identifier: Apache-2.0
#include "model/tape_batch.h"

#include <algorithm>

#include "base/check.h"

namespace tlt::model {
namespace {

int64_t pages_of(int32_t rows) { return (rows + ops::kPageSlots - 1) / ops::kPageSlots; }

}  // namespace

void TapeBatch::add_sequence(const int32_t* tokens, int32_t count) {
  TLT_CHECK(count > 0, "empty sequence");
  prefix_ = static_cast<int32_t>(batch_.segments.size());
  batch_.add(tokens, count, /*first_position=*/0, nullptr);
  used_pages_ += pages_of(count);
}

void TapeBatch::add_suffix(const int32_t* tokens, int32_t count) {
  TLT_CHECK(count > 0 && prefix_ >= 0, "a suffix of ", count, " tokens");
  TLT_CHECK(batch_.segments[static_cast<size_t>(prefix_)].rows % ops::kPageSlots == 0,
            "a shared prefix that is not whole pages");
  batch_.add_suffix(tokens, count, prefix_, nullptr);
  used_pages_ += pages_of(count);
}

void TapeBatch::clear() {
  batch_.clear();
  prefix_ = -1;
  used_pages_ = 0;
}

void TapeBatch::prepare_cache(const Device& device, const kv::KvShape& shape) {
  if (!cache_ || cache_->pages() < used_pages_) {
    cache_.reset();
    cache_ = std::make_unique<kv::KvCache>(device, shape, used_pages_);
  }
  size_t listed = 0;
  for (const ops::Segment& segment : batch_.segments)
    listed += static_cast<size_t>(pages_of(segment.end_position()));
  pages_.resize(listed);
  ops::PageId next = 0;
  ops::PageId* list = pages_.data();
  for (ops::Segment& segment : batch_.segments) {
    segment.pages = list;
    if (segment.shared_prefix >= 0) {
      const ops::Segment& prefix = batch_.segments[static_cast<size_t>(segment.shared_prefix)];
      list = std::copy_n(prefix.pages, pages_of(prefix.rows), list);
    }
    for (int64_t i = 0; i < pages_of(segment.rows); ++i) *list++ = next++;
    // What an earlier batch left in its unused slots may not be finite (kv_cache.cpp).
    if (segment.rows % ops::kPageSlots != 0) cache_->clear_page(list[-1]);
  }
}

}  // namespace tlt::model

// SPDX-License-Identifier: Apache-2.0
#include "model/tape_batch.h"

#include "base/check.h"

namespace tlt::model {
namespace {

int64_t pages_of(int32_t rows) { return (rows + ops::kPageSlots - 1) / ops::kPageSlots; }

}  // namespace

void TapeBatch::add_sequence(const int32_t* tokens, int32_t count) {
  TLT_CHECK(count > 0, "empty sequence");
  batch_.add(tokens, count, /*first_position=*/0, nullptr);
  used_pages_ += pages_of(count);
}

void TapeBatch::clear() {
  batch_.clear();
  used_pages_ = 0;
}

void TapeBatch::prepare_cache(const Device& device, const kv::KvShape& shape) {
  if (!cache_ || cache_->pages() < used_pages_) {
    cache_.reset();
    cache_ = std::make_unique<kv::KvCache>(device, shape, used_pages_);
    pages_.resize(static_cast<size_t>(used_pages_));
    for (size_t i = 0; i < pages_.size(); ++i) pages_[i] = static_cast<ops::PageId>(i);
  }
  const ops::PageId* next = pages_.data();
  for (ops::Segment& segment : batch_.segments) {
    segment.pages = next;
    next += pages_of(segment.rows);
  }
}

}  // namespace tlt::model

// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/eagle_cache.h"

#include <algorithm>

#include "base/check.h"

namespace tlt::drafter {
namespace {

int64_t pages_in(int64_t memory_bytes, const kv::KvShape& shape) {
  const int64_t page_bytes = shape.page_bytes();
  TLT_CHECK_INPUT(memory_bytes >= page_bytes, "an eighth of speculative.memory_bytes is ",
                  memory_bytes, ", less than one page of the draft model's KV cache, ", page_bytes,
                  "; give at least ", 8 * page_bytes);
  return std::min<int64_t>(memory_bytes / page_bytes, INT32_MAX);
}

}  // namespace

EagleCache::EagleCache(const Device& device, const kv::KvShape& shape, int64_t memory_bytes)
    : kv_cache_(device, shape, pages_in(memory_bytes, shape)), pool_(kv_cache_.pages()) {}

int64_t EagleCache::memory_bytes() const {
  return pool_.total_pages() *
         (kv_cache_.shape().page_bytes() + static_cast<int64_t>(2 * sizeof(kv::PageId)));
}

void EagleCache::remember(EagleContext* context) { contexts_.push_back(context); }

void EagleCache::forget(EagleContext* context) {
  release(*context);
  const auto found = std::ranges::find(contexts_, context);
  TLT_CHECK(found != contexts_.end());
  *found = contexts_.back();
  contexts_.pop_back();
}

bool EagleCache::try_reserve(EagleContext& context, int64_t positions) {
  while (std::ssize(context.pages) < ops::pages_for(positions)) {
    const auto page = try_take();
    if (!page) return false;
    context.pages.push_back(*page);
  }
  return true;
}

void EagleCache::share(EagleContext& context, kv::PageId page) {
  pool_.share(page);
  context.pages.push_back(page);
}

void EagleCache::release(EagleContext& context) {
  for (const kv::PageId page : context.pages) pool_.release(page);
  context.pages.clear();
  context.read = context.origin;
}

std::optional<kv::PageId> EagleCache::try_take() {
  while (pool_.free_pages() == 0)  // releasing a shared page does not free it
    if (!try_evict()) return std::nullopt;
  return pool_.try_take();
}

bool EagleCache::try_evict() {
  EagleContext* oldest = nullptr;
  for (EagleContext* context : contexts_)
    if (!context->pages.empty() && context->asked != step_ &&
        (oldest == nullptr || context->asked < oldest->asked))
      oldest = context;
  if (oldest == nullptr) return false;
  release(*oldest);
  return true;
}

int64_t EagleLanes::pages_needed(int64_t base, int64_t width, int64_t levels) {
  return levels == 0 ? 0 : (width - 1) * (ops::pages_for(base + levels) - base / ops::kPageSlots);
}

bool EagleLanes::try_start(EagleCache& cache, const EagleContext& context, int64_t base,
                           int64_t width, int64_t levels) {
  base_ = base;
  table_pages_ = levels == 0 ? 0 : ops::pages_for(base + levels);
  sets_ = levels == 0 ? 0 : width;
  set_of_lane_.assign(1, 0);
  pages_.resize(static_cast<size_t>(sets_ * table_pages_));
  for (int64_t set = 0; set < sets_; ++set) {
    std::copy_n(context.pages.begin(), table_pages_, &page(set, 0));
    for (int64_t i = base_ / ops::kPageSlots; set > 0 && i < table_pages_; ++i) {
      const auto taken = cache.try_take();
      if (!taken) {
        while (i-- > base_ / ops::kPageSlots) cache.pool_.release(page(set, i));
        sets_ = set;
        finish(cache);
        return false;
      }
      page(set, i) = *taken;
    }
  }
  return true;
}

void EagleLanes::move(EagleCache& cache, std::span<const int32_t> parents, int64_t written) {
  constexpr int64_t kNone = -1;
  is_used_.assign(static_cast<size_t>(sets_), false);
  next_set_of_lane_.assign(parents.size(), kNone);
  for (size_t lane = 0; lane < parents.size(); ++lane) {
    const int64_t set = set_of_lane_[static_cast<size_t>(parents[lane])];
    if (is_used_[static_cast<size_t>(set)]) continue;
    is_used_[static_cast<size_t>(set)] = true;
    next_set_of_lane_[lane] = set;
  }
  copies_.clear();
  int64_t free = 0;
  for (size_t lane = 0; lane < parents.size(); ++lane) {
    if (next_set_of_lane_[lane] != kNone) continue;
    while (is_used_[static_cast<size_t>(free)]) ++free;
    is_used_[static_cast<size_t>(free)] = true;
    next_set_of_lane_[lane] = free;
    const int64_t parent = set_of_lane_[static_cast<size_t>(parents[lane])];
    for (int64_t i = base_ / ops::kPageSlots; i < ops::pages_for(base_ + written); ++i)
      copies_.push_back({page(parent, i), page(free, i)});
  }
  cache.kv_cache_.copy_pages(copies_);
  set_of_lane_.swap(next_set_of_lane_);
}

void EagleLanes::finish(EagleCache& cache) {
  for (int64_t set = 1; set < sets_; ++set)
    for (int64_t i = base_ / ops::kPageSlots; i < table_pages_; ++i)
      cache.pool_.release(page(set, i));
  sets_ = 0;
}

}  // namespace tlt::drafter

// SPDX-License-Identifier: Apache-2.0
#include "rollout/shared_prefixes.h"

#include <algorithm>
#include <utility>

namespace tlt::rollout {

SharedPrefixes::SharedPrefixes(kv::PagePool& pool, const EngineOptions& options)
    : pool_(pool), caches_prompts_(options.caches_prompts) {
  if (options.prefix_cache) cache_.emplace(pool_);
}

// The prompt's next page after this prefix of it. Never the one with its last token, whose row is
// computed to sample from. None if only resumed responses begin with cached pages.
std::optional<kv::PrefixCache::Found> SharedPrefixes::find_page(const GroupState& group,
                                                                const CachedPrefix& prefix) const {
  const int64_t position = prefix.pages * ops::kPageSlots;
  if (!cache_ || !caches_prompts_ || position + ops::kPageSlots >= group.prompt_tokens())
    return std::nullopt;
  return cache_->find(
      prefix.id,
      std::span(group.request.tokens).subspan(static_cast<size_t>(position), ops::kPageSlots));
}

int64_t SharedPrefixes::held_pages_of(const GroupState& group) const {
  CachedPrefix prefix = group.cached;
  int64_t held = 0;
  while (const auto found = find_page(group, prefix)) {
    if (pool_.holders(found->page) == 0) break;  // nor has the next one a holder
    prefix = {prefix.pages + 1, found->prefix};
    ++held;
  }
  return held;
}

void SharedPrefixes::begin_with_cached(GroupState& group) {
  if (!cache_) return;
  Sequence* const resumed = group.lone_resumed();
  if (!std::exchange(group.is_looked_up, true) && (resumed || caches_prompts_))
    stats_.queries += resumed ? resumed->known() : group.prompt_tokens();
  if (resumed && try_begin_with_cached(*resumed)) return;
  const int64_t before = group.cached.pages;
  while (const auto found = find_page(group, group.cached)) {
    for (; std::ssize(group.pages) > group.cached.pages; group.pages.pop_back())
      pool_.release(group.pages.back());
    pool_.share(found->page);
    group.pages.push_back(found->page);
    group.cached = {group.cached.pages + 1, found->prefix};
  }
  if (group.cached.pages == before) return;
  group.computed = static_cast<int32_t>(group.cached.pages * ops::kPageSlots);
  const int32_t hits = std::max(group.computed - group.max_computed, 0);
  group.max_computed += hits;
  count_hits(group, hits);
}

void SharedPrefixes::count_hits(GroupState& group, int32_t hits) {
  group.cached_tokens += hits;
  stats_.hits += hits;
}

SharedPrefixes::CachedPages SharedPrefixes::pages_of_resumed(const Sequence& sequence) const {
  CachedPages cached;
  PageTokens tokens;
  for (;;) {
    const int64_t end = (cached.prefix.pages + 1) * ops::kPageSlots;
    if (!cache_ || end >= sequence.known()) break;
    sequence.copy_page(cached.prefix.pages, tokens);
    const auto found = cache_->find(cached.prefix.id, tokens);
    if (!found) break;
    cached.pages.push_back(found->page);
    cached.prefix = {cached.prefix.pages + 1, found->prefix};
    cached.held += pool_.holders(found->page) > 0 ? 1 : 0;
  }
  if (cached.prefix.pages * ops::kPageSlots < sequence.group->prompt_tokens()) return {};
  return cached;
}

bool SharedPrefixes::try_begin_with_cached(Sequence& sequence) {
  GroupState& group = *sequence.group;
  CachedPages cached = pages_of_resumed(sequence);
  if (cached.pages.empty()) return false;
  for (const ops::PageId page : cached.pages) pool_.share(page);
  for (; !group.pages.empty(); group.pages.pop_back()) pool_.release(group.pages.back());
  const auto computed = static_cast<int32_t>(cached.prefix.pages * ops::kPageSlots);
  count_hits(group, std::max(computed - std::max(sequence.max_computed, group.max_computed), 0));
  group.computed = group.max_computed = group.prompt_tokens();
  sequence.pages = std::move(cached.pages);
  sequence.pages.reserve(group.most_pages());
  sequence.cached = cached.prefix;
  sequence.computed = computed;
  sequence.max_computed = std::max(sequence.max_computed, computed);
  return true;
}

void SharedPrefixes::add_full_pages(GroupState& group) {
  while (cache_ && (group.cached.pages + 1) * ops::kPageSlots <= group.computed)
    add_page(
        group.cached,
        std::span(group.request.tokens)
            .subspan(static_cast<size_t>(group.cached.pages * ops::kPageSlots), ops::kPageSlots),
        group.pages);
}

void SharedPrefixes::add_full_pages(Sequence& sequence) {
  PageTokens tokens;
  while (cache_ && (sequence.cached.pages + 1) * ops::kPageSlots <= sequence.computed) {
    sequence.copy_page(sequence.cached.pages, tokens);
    add_page(sequence.cached, tokens, sequence.pages);
  }
}

// If another sequence has computed the same page, it replaces this one's: the bits are the same.
void SharedPrefixes::add_page(CachedPrefix& cached, std::span<const int32_t> tokens,
                              std::vector<ops::PageId>& pages) {
  ops::PageId& page = pages[static_cast<size_t>(cached.pages)];
  const kv::PrefixCache::Found found = cache_->insert(cached.id, tokens, page);
  if (found.page != page) {
    pool_.share(found.page);
    pool_.release(std::exchange(page, found.page));
  }
  cached = {cached.pages + 1, found.prefix};
}

void SharedPrefixes::clear() {
  if (cache_) cache_->clear();
}

void SharedPrefixes::check_invariants() const {
  if (cache_) cache_->check_invariants();
}

}  // namespace tlt::rollout

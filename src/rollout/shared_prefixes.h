// SharedPrefixes: the prefix cache of the scheduler: every page that is full goes there, also those
// of responses, and a prompt begins with the pages that the cache has of it.
//
// A resumed response that is alone in its group begins with those of its prompt and its tokens: so
// a turn computes what is new in it, and what it had lost in the meantime. A page is added after
// the forward pass that computed its last entry, and then never written: so what is shared is
// complete. Without EngineOptions::prefix_cache nothing has an effect.
//
// Owns       the prefix cache.
// Borrows    kv::PagePool, to share and release pages.
// Threading  engine thread only; no locks.
//
//   prefixes.begin_with_cached(group);      // before the rows of a prompt are planned
//   prefixes.add_full_pages(group);         // after they were computed
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kv/page_pool.h"
#include "kv/prefix_cache.h"
#include "rollout/engine_options.h"
#include "rollout/sequence.h"

namespace tlt::rollout {

// Since construction.
struct PrefixCacheStats {
  int64_t queries = 0;  // tokens that were looked up: of prompts and resumed responses
  int64_t hits = 0;     // part of queries: tokens that need not be computed
};

class SharedPrefixes {
 public:
  SharedPrefixes(kv::PagePool& pool, const EngineOptions& options);

  struct CachedPages {
    std::vector<ops::PageId> pages;
    CachedPrefix prefix;  // that they are
    int64_t held = 0;     // of them by sequences that run
  };
  // The cached pages of a response that is alone in its group, if they have its whole prompt; else
  // none. Without the page of its last token, whose row is computed to sample from.
  CachedPages pages_of_resumed(const Sequence& sequence) const;

  // Pages that the prompt will share with sequences that have them now.
  int64_t held_pages_of(const GroupState& group) const;
  // In place of what is not computed yet, and of a page that is computed in part.
  void begin_with_cached(GroupState& group);
  void add_full_pages(GroupState& group);
  void add_full_pages(Sequence& sequence);

  void clear();
  const PrefixCacheStats& stats() const { return stats_; }
  // Throws Error when the cache and the pages differ. Slow: for tests.
  void check_invariants() const;

 private:
  // False: the cache does not have the whole prompt.
  bool try_begin_with_cached(Sequence& sequence);
  void count_hits(GroupState& group, int32_t hits);
  std::optional<kv::PrefixCache::Found> find_page(const GroupState& group,
                                                  const CachedPrefix& prefix) const;
  void add_page(CachedPrefix& cached, std::span<const int32_t> tokens,
                std::vector<ops::PageId>& pages);

  kv::PagePool& pool_;
  const bool caches_prompts_;
  std::optional<kv::PrefixCache> cache_;
  PrefixCacheStats stats_;
};

}  // namespace tlt::rollout

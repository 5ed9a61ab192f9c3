// PrefixCache: finds the page that has the KV entries of given tokens after a given prefix, so that
// sequences with a common beginning compute it once, also one after the other.
//
// A page is identified by its tokens and by the prefix before them, which has a number (PrefixId) of
// its own. A hash only chooses where to look: the tokens themselves are compared, and a prefix id
// is one prefix and one version of the weights. So a page that is found is the right one.
//
// A page belongs to the cache as long as the pool keeps it: a holder is not needed, and
// PagePool::try_take() takes the least recently used one when no other page is free. Its prefix's
// pages are released after it (rollout/scheduler.h), so they are taken later.
//
// Owns       the tokens of kept pages, and the ids of prefixes.
// Borrows    PagePool, in which it keeps pages.
// Not here   who holds a page (the scheduler shares and releases).
// Threading  engine thread only; no locks.
// Invariant  the prefix of a page in the cache is in the cache.
//
//   PrefixId prefix = PrefixCache::kEmpty;
//   while (auto found = cache.find(prefix, tokens_of_next_page())) {
//     pool.share(found->page);
//     prefix = found->prefix;
//   }
//   … compute the next page …
//   prefix = cache.insert(prefix, tokens_of_next_page(), page).prefix;
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/page_pool.h"

namespace tlt::kv {

// A prefix of whole pages.
using PrefixId = int64_t;

class PrefixCache {
 public:
  static constexpr PrefixId kEmpty = 0;  // no tokens

  // Consecutive tokens after a prefix: what one page holds.
  struct Key {
    PrefixId before = kEmpty;
    std::array<int32_t, ops::kPageSlots> tokens = {};
    bool operator==(const Key&) const = default;
  };
  using Hash = std::function<size_t(const Key&)>;
  static size_t hash_of(const Key& key);

  struct Found {
    PrefixId prefix = kEmpty;  // that ends with the page
    PageId page = 0;
  };

  // hash: any function; tests give a bad one.
  explicit PrefixCache(PagePool& pool, const Hash& hash = hash_of);

  // The page with these tokens after this prefix. REQUIRES: kPageSlots tokens; the prefix is in the
  // cache.
  std::optional<Found> find(PrefixId before, std::span<const int32_t> tokens) const;

  // Adds a page whose KV entries are all computed, unless the cache has one with these tokens
  // already. Returns the cache's page. REQUIRES: as find(); `page` has a holder.
  Found insert(PrefixId before, std::span<const int32_t> tokens, PageId page);

  // The weights have changed: forgets all pages. Ids of prefixes are not used again.
  void clear();

  // Throws Error when the cache and the pool differ, or a page is there without its prefix. Slow.
  void check_invariants() const;

 private:
  struct Entry {
    Key key;
    PrefixId prefix = kEmpty;  // kEmpty: none
  };

  Key key_of(PrefixId before, std::span<const int32_t> tokens) const;
  const Entry& entry(PageId page) const { return entries_[static_cast<size_t>(page)]; }

  PagePool& pool_;
  // Pages that the pool keeps no longer have an entry until they are inserted again.
  std::unordered_map<Key, PageId, Hash> pages_;
  std::vector<Entry> entries_;  // by page
  PrefixId last_prefix_ = 0;
  PrefixId root_ = 0;  // minus the version of the weights, in place of kEmpty in keys
};

}  // namespace tlt::kv

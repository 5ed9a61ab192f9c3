// SPDX-License-Identifier: Apache-2.0
#include "kv/prefix_cache.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/check.h"

namespace tlt::kv {

size_t PrefixCache::hash_of(const Key& key) {
  static_assert(sizeof(Key) == sizeof(PrefixId) + ops::kPageSlots * sizeof(int32_t), "no padding");
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&key), sizeof(key)});
}

PrefixCache::PrefixCache(PagePool& pool, const Hash& hash)
    : pool_(pool),
      pages_(/*buckets=*/16, hash),
      entries_(static_cast<size_t>(pool.total_pages())) {}

PrefixCache::Key PrefixCache::key_of(PrefixId before, std::span<const int32_t> tokens) const {
  Key key{.before = before == kEmpty ? root_ : before};
  TLT_CHECK(tokens.size() == key.tokens.size(), tokens.size(), " tokens of a page");
  std::ranges::copy(tokens, key.tokens.begin());
  return key;
}

std::optional<PrefixCache::Found> PrefixCache::find(PrefixId before,
                                                    std::span<const int32_t> tokens) const {
  const auto found = pages_.find(key_of(before, tokens));
  if (found == pages_.end() || !pool_.is_kept(found->second)) return std::nullopt;
  return Found{entry(found->second).prefix, found->second};
}

PrefixCache::Found PrefixCache::insert(PrefixId before, std::span<const int32_t> tokens,
                                       PageId page) {
  if (const auto found = find(before, tokens)) return *found;
  TLT_CHECK(!pool_.is_kept(page), "page ", page, " has other tokens");
  Entry& entry = entries_[static_cast<size_t>(page)];
  // What the page had, unless another page has the same since.
  if (const auto old = pages_.find(entry.key);
      entry.prefix != kEmpty && old != pages_.end() && old->second == page)
    pages_.erase(old);
  entry = {key_of(before, tokens), ++last_prefix_};
  pages_[entry.key] = page;
  pool_.keep(page);
  return {entry.prefix, page};
}

void PrefixCache::clear() {
  for (const auto& [key, page] : pages_) pool_.forget(page);
  pages_.clear();
  std::ranges::fill(entries_, Entry{});
  --root_;
}

void PrefixCache::check_invariants() const {
  std::unordered_map<PrefixId, PageId> prefixes;
  for (PageId page = 0; page < pool_.total_pages(); ++page)
    if (pool_.is_kept(page)) prefixes[entry(page).prefix] = page;
  for (const auto& [prefix, page] : prefixes) {
    const Key& key = entry(page).key;
    const auto found = pages_.find(key);
    TLT_CHECK(prefix != kEmpty && found != pages_.end() && found->second == page, "page ", page,
              " is kept and not in the prefix cache");
    if (key.before == root_) continue;
    const auto before = prefixes.find(key.before);
    TLT_CHECK(before != prefixes.end(), "page ", page, " is kept without its prefix");
    TLT_CHECK(pool_.holders(page) == 0 || pool_.holders(before->second) > 0, "page ", page,
              " is held without its prefix");
  }
  TLT_CHECK(std::ssize(pages_) <= pool_.total_pages(), pages_.size(), " entries for ",
            pool_.total_pages(), " pages");
}

}  // namespace tlt::kv

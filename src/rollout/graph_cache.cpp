// SPDX-License-Identifier: Apache-2.0
#include "rollout/graph_cache.h"

#include "base/check.h"

namespace tlt::rollout {

GraphCache::GraphCache(runtime::Accelerator& accelerator, at::Device device, int64_t most)
    : accelerator_(accelerator), device_(device), most_(most) {
  TLT_CHECK(most >= 1, most, " sets of graphs");
}

void GraphCache::launch(int64_t rows, int64_t part, const std::function<void()>& work) {
  if (part == 0) begin(rows);
  const auto found = sets_.find(rows);
  TLT_CHECK(found != sets_.end(), "part ", part, " of a pass of ", rows, " rows without part 0");
  if (found->second.is_direct) return work();
  auto& parts = found->second.parts;
  // The second pass, or the first one that comes so far.
  if (part == std::ssize(parts)) parts.push_back(capture(work));
  TLT_CHECK(part < std::ssize(parts), "part ", part, " after ", parts.size());
  parts[static_cast<size_t>(part)]->replay();
}

std::unique_ptr<runtime::Graph> GraphCache::capture(const std::function<void()>& work) {
  const int64_t before = accelerator_.memory(device_).free_bytes;
  std::unique_ptr<runtime::Graph> graph = accelerator_.capture(device_, work);
  stats_.bytes += before - accelerator_.memory(device_).free_bytes;
  return graph;
}

void GraphCache::begin(int64_t rows) {
  const auto [place, is_new] = sets_.try_emplace(rows);
  Set& set = place->second;
  set.is_direct = is_new;
  set.used = ++passes_;
  if (is_new) {
    ++stats_.direct;
  } else if (!set.parts.empty()) {
    ++stats_.replays;
  } else {
    ++stats_.captures;
    if (stats().sets > most_) drop_oldest();
  }
}

// The one that is being captured was used last.
void GraphCache::drop_oldest() {
  auto oldest = sets_.end();
  for (auto it = sets_.begin(); it != sets_.end(); ++it)
    if (!it->second.is_direct && (oldest == sets_.end() || it->second.used < oldest->second.used))
      oldest = it;
  sets_.erase(oldest);
  ++stats_.dropped;
}

void GraphCache::clear() { sets_.clear(); }

GraphStats GraphCache::stats() const {
  GraphStats stats = stats_;
  for (const auto& [rows, set] : sets_) {
    if (set.is_direct) continue;
    ++stats.sets;
    stats.rows += rows;
  }
  return stats;
}

}  // namespace tlt::rollout

// SPDX-License-Identifier: Apache-2.0
#include "cluster/worker_loads.h"

#include <algorithm>
#include <iterator>

namespace tlt::cluster {
namespace {

constexpr int64_t kTokensPerRemaining = 4;
constexpr int64_t kMostTokens = int64_t{1} << 20;  // kMaxMigrationBytes holds 4 times as many

bool is_worth_migrating(const WorkerLoad& load) {
  return load.tokens <= kTokensPerRemaining * load.remaining && load.tokens <= kMostTokens;
}

}  // namespace

void WorkerLoads::report(int worker, const WorkerLoad& load) {
  forget(worker);
  loads_[static_cast<size_t>(worker)] = load;
  by_room_.emplace(load.room, worker);
  if (is_worth_migrating(load)) senders_.emplace(load.sequences, load.tokens, worker);
}

void WorkerLoads::forget(int worker) {
  std::optional<WorkerLoad>& load = loads_[static_cast<size_t>(worker)];
  if (!load) return;
  by_room_.erase({load->room, worker});
  senders_.erase({load->sequences, load->tokens, worker});
  load.reset();
}

void WorkerLoads::clear() {
  std::ranges::fill(loads_, std::nullopt);
  by_room_.clear();
  senders_.clear();
}

int64_t WorkerLoads::most_room_besides(int worker) const {
  auto roomiest = by_room_.rbegin();
  if (roomiest != by_room_.rend() && roomiest->second == worker) ++roomiest;
  return roomiest == by_room_.rend() ? -1 : roomiest->first;
}

int WorkerLoads::receiver(int from, int64_t sequences) const {
  int best = -1;
  for (int i = 0; i < std::ssize(loads_); ++i) {
    const std::optional<WorkerLoad>& load = loads_[static_cast<size_t>(i)];
    if (i == from || !load || load->room < sequences) continue;
    if (best < 0 || load->sequences > loads_[static_cast<size_t>(best)]->sequences) best = i;
  }
  return best;
}

// The smallest sender may be the one with the most room, which cannot be its own receiver; if the
// second one does not fit either, larger ones do not.
std::optional<Migration> WorkerLoads::find_migration() const {
  int tried = 0;
  for (auto it = senders_.begin(); it != senders_.end() && tried < 2; ++it, ++tried)
    if (const auto [sequences, tokens, from] = *it; sequences <= most_room_besides(from))
      return Migration{.from = from, .to = receiver(from, sequences)};
  return std::nullopt;
}

}  // namespace tlt::cluster

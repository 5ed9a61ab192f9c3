// WorkerLoads: what the workers of a rollout last reported of their engines, and which migration
// between two of them is worth it.
//
// The receiving worker computes the KV cache of migrated tokens again. That is prefill: a forward
// pass takes some tens of such tokens in the time of one decode step. A migration is worth it if
// that cost is small relative to the tokens that may still be generated.
//
// Searched after each event of a rollout's tail: find_migration() looks at two workers where there
// is none to find, and at all of them only for one that it returns.
//
//   loads.report(worker, load);
//   if (const auto migration = loads.find_migration()) ask(migration->from);
//
// Threading  none of its own; external synchronization.
// Invariant  by_room_ has the workers with a report, senders_ those of them worth migrating.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "cluster/messages.h"

namespace tlt::cluster {

struct Migration {
  int from = 0, to = 0;  // workers
};

class WorkerLoads {
 public:
  explicit WorkerLoads(int workers) : loads_(static_cast<size_t>(workers)) {}

  void report(int worker, const WorkerLoad& load);
  void forget(int worker);  // the report is out of date
  void clear();

  // The smallest migration that is worth it, to the worker with the most sequences among those with
  // room for it.
  std::optional<Migration> find_migration() const;

 private:
  int64_t most_room_besides(int worker) const;  // -1: no other has a report
  int receiver(int from, int64_t sequences) const;

  std::vector<std::optional<WorkerLoad>> loads_;         // by worker
  std::set<std::pair<int64_t, int>> by_room_;            // room, worker
  std::set<std::tuple<int64_t, int64_t, int>> senders_;  // sequences, tokens, worker
};

}  // namespace tlt::cluster

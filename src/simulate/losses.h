// LossSchedule: which workers are lost when: those that are given (lost_workers), and random ones
// (losses_per_worker_day: exponential times between the losses of a worker, by seed).
//
// Owns       the losses to come.
// Threading  one thread.
//
//   while (const std::optional<Loss> loss = losses.try_next(now)) …  // in order of time
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "simulate/simulate_options.h"

namespace tlt::simulate {

struct Loss {
  double at = 0;
  int64_t worker = 0;
  bool operator>(const Loss& other) const {
    return std::pair(at, worker) > std::pair(other.at, other.worker);
  }
};

class LossSchedule {
 public:
  // InputError: a loss that is not WORKER@SECONDS, or of no worker.
  explicit LossSchedule(const SimulateOptions& options);

  // Of the next loss; infinity: there is none.
  double next_at() const {
    return losses_.empty() ? std::numeric_limits<double>::infinity() : losses_.top().at;
  }
  // Takes the next loss up to `now`; nullopt: there is none.
  [[nodiscard]] std::optional<Loss> try_next(double now);

 private:
  void draw(int64_t worker, double from);

  const double mean_seconds_;  // between the random losses of a worker; 0: there are none
  const uint64_t seed_;
  std::vector<uint32_t> drawn_;  // [worker] random losses so far
  std::priority_queue<Loss, std::vector<Loss>, std::greater<>> losses_;
};

}  // namespace tlt::simulate

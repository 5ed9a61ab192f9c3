// GroupExchange: decides which idle worker computes the gradients of which other worker's finished
// groups.
//
// A group belongs to the worker that finished it until that worker hands it over; from then on it
// belongs to the receiver. So no two workers compute one. The exchange knows only how many groups a
// worker has and has not begun, and asks it for one when another worker wants one. The update
// computes what is lost on the way.
//
// Owns       how many finished groups each worker offers, and which workers want one.
// Not here   the groups (rl/rollout_phase.h); messages (coordinator.h).
// Threading  none of its own; external synchronization.
//
//   exchange.offer(/*worker=*/0, /*groups=*/3);
//   exchange.want(/*worker=*/1);
//   while (const auto match = exchange.next_match())
//     … ask match->from for a group for match->to …
//   exchange.handed_over(/*from=*/0, /*to=*/1, /*has_group=*/true);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tlt::cluster {

class GroupExchange {
 public:
  struct Match {
    int from = 0, to = 0;
    bool operator==(const Match&) const = default;
  };

  explicit GroupExchange(int workers) : workers_(static_cast<size_t>(workers)) {}

  void begin_step() { workers_.assign(workers_.size(), {}), wanting_ = 0; }
  // The worker has this many finished groups that it has not begun.
  void offer(int worker, int64_t groups) { at(worker).offered = groups; }
  // The worker is idle and has no group of its own to compute.
  void want(int worker) { set_wants(at(worker), true); }
  // It has a group to roll out instead. What it was promised still comes; if none does, no other
  // worker is asked.
  void end_want(int worker) { set_wants(at(worker), false), at(worker).asked.reset(); }
  // `from` has answered to a match, with a group or, if it has begun all of them, without one.
  void handed_over(int from, int to, bool has_group);
  void lose(int worker);

  // The next worker to ask for a group, the one with the most, and for whom.
  std::optional<Match> next_match();

 private:
  struct Worker {
    int64_t offered = 0;
    bool wants = false;
    std::optional<int> asked;  // who was asked for a group for this worker
  };
  Worker& at(int worker) { return workers_[static_cast<size_t>(worker)]; }
  void set_wants(Worker& worker, bool wants) {
    wanting_ += wants - worker.wants;
    worker.wants = wants;
  }

  std::vector<Worker> workers_;
  int64_t wanting_ = 0;  // workers
};

}  // namespace tlt::cluster

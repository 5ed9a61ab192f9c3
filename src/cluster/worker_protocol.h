// WorkerProtocol: the worker's side of the protocol with the Coordinator, as a pure state machine.
//
// Holds at most one group that the engine has not started. If the coordinator recalls it, the
// worker answers Returned if it still holds it; if the engine has taken it, Started was sent
// already. Exactly one of the two is sent for each group.
//
// Not here   the lock under which the engine's and the socket's thread call it (control.h).
// Threading  none of its own; external synchronization.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cluster/messages.h"

namespace tlt::cluster {

class WorkerProtocol {
 public:
  explicit WorkerProtocol(int worker) : worker_(worker) {}

  // The events to send are appended to `out`, here and below. REQUIRES: the previous step is done.
  void begin_step(int64_t step, int64_t groups, std::vector<Event>& out);

  // Returns the next group, or migration, to start. nullopt: none yet; try again after news.
  [[nodiscard]] std::optional<int64_t> try_take(std::vector<Event>& out);
  // Returns the bytes of the migration that was taken last.
  std::string take_migration();

  // REQUIRES: the group was taken here and is not done.
  void done(int64_t group, std::vector<Event>& out);

  // Reports what is left of the groups taken here; sends it only if it has changed enough.
  void report(const WorkerLoad& load, std::vector<Event>& out);

  // Ends all groups taken here, except for what `migration` holds. REQUIRES: should_migrate().
  void move(std::string migration, std::vector<Event>& out);

  // Finished groups, whose gradients may be computed elsewhere (group_exchange.h). How many this
  // worker has and has not begun; sent only if it has changed.
  void offer(int64_t groups, std::vector<Event>& out);
  // The rollouts of another worker's group, or empty: then they are requested, and come later.
  std::string take_finished(std::vector<Event>& out);
  // Hands over a group, which is then another worker's, or none. REQUIRES: should_hand_over().
  void hand_over(std::string rollouts, std::vector<Event>& out);
  // This worker was interrupted: asks for the end of the step, or, if it is done, tells the others.
  void stop(std::vector<Event>& out);

  // Handles a command of the coordinator.
  void on(const WorkerCommand& command, std::vector<Event>& out);

  bool step_done() const { return step_done_; }
  // The step ended because a worker was interrupted, not because its groups are done. The calls
  // for the groups taken here have no effect from then on.
  bool was_stopped() const { return was_stopped_; }
  // A worker was interrupted in this step or after it.
  bool is_interrupted() const { return is_interrupted_; }
  // From kTrain on, until there is work or the step is done.
  bool may_train() const { return may_train_; }
  bool has_group() const { return held_.has_value(); }
  bool has_migration() const { return held_ && *held_ >= groups_; }
  // From kMigrate on, until move() or the last group taken here is done.
  bool should_migrate() const { return should_migrate_; }
  bool should_hand_over() const { return !hand_over_to_.empty(); }
  bool has_finished() const { return !finished_.empty(); }
  bool was_given_up() const { return given_up_; }
  const std::vector<int>& lost_workers() const { return lost_workers_; }

 private:
  void stopped();  // kStop
  // False: the command belongs to its step, and has not been handled.
  bool handles_in_any_step(const WorkerCommand& command);
  Event event(Event::Kind kind, int64_t group) const {
    return {.kind = kind, .worker = worker_, .step = step_, .group = group};
  }

  const int worker_;
  int64_t step_ = -1;
  int64_t groups_ = 0;  // of the step; ids from here on are migrations
  bool step_done_ = true;
  bool was_stopped_ = false, is_interrupted_ = false;
  bool stop_sent_ = false;
  bool requested_ = false;  // Take was sent, and no group came since
  bool given_up_ = false;
  bool may_train_ = false;
  bool should_migrate_ = false;
  WorkerLoad reported_;
  std::optional<int64_t> held_;
  std::string held_migration_, migration_;  // of held_; of the group taken last
  std::vector<int64_t> taken_;
  int64_t offered_ = 0;
  bool wants_ = false;                // Want was sent, and no group came since
  std::deque<int64_t> hand_over_to_;  // workers
  std::deque<std::string> finished_;  // rollouts of groups that were handed over to this worker
  std::vector<int> lost_workers_;
};

}  // namespace tlt::cluster

// WorkerProtocol: the worker's half of the conversation with the Coordinator, as a pure state
// machine.
//
// Holds at most one group that the engine has not started. If the coordinator asks it back, the
// worker answers Returned when it still holds it; when the engine has taken it, Started was said
// already. One of the two is said for each group.
//
// Not here   the lock under which the engine's thread and the socket's thread call it (control.h).
// Threading  none of its own; external synchronization.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/messages.h"

namespace tlt::cluster {

class WorkerProtocol {
 public:
  explicit WorkerProtocol(int worker) : worker_(worker) {}

  // What the caller must send is appended to `out`, here and below. REQUIRES: the step before is
  // done.
  void begin_step(int64_t step, int64_t groups, std::vector<Event>& out);

  // The next group, or parcel, to start; nullopt: none yet, ask again after news.
  [[nodiscard]] std::optional<int64_t> try_take(std::vector<Event>& out);
  // Of the parcel that was taken last.
  std::string take_parcel();

  // REQUIRES: the group was taken here and is not done.
  void done(int64_t group, std::vector<Event>& out);

  // What is left of the groups taken here; said where it is news.
  void report(const Load& load, std::vector<Event>& out);

  // All groups taken here are done but for what is in the parcel. REQUIRES: is_asked_to_move().
  void move(std::string parcel, std::vector<Event>& out);

  // The coordinator said something.
  void on(const Command& command, std::vector<Event>& out);

  bool step_done() const { return step_done_; }
  // From kTrain on, until there is work or the step is done.
  bool may_train() const { return may_train_; }
  bool has_group() const { return held_.has_value(); }
  bool has_parcel() const { return held_ && *held_ >= groups_; }
  // From kMove on, until move() or the last group taken here is done.
  bool is_asked_to_move() const { return asked_to_move_; }
  bool was_given_up() const { return given_up_; }
  const std::vector<int>& lost_workers() const { return lost_workers_; }

 private:
  Event event(Event::Kind kind, int64_t group) const {
    return {.kind = kind, .worker = worker_, .step = step_, .group = group};
  }

  const int worker_;
  int64_t step_ = -1;
  int64_t groups_ = 0;  // of the step; from here on the numbers are those of parcels
  bool step_done_ = true;
  bool asked_ = false;  // Take was said and no group has come since
  bool given_up_ = false;
  bool may_train_ = false;
  bool asked_to_move_ = false;
  Load reported_;
  std::optional<int64_t> held_;
  std::string held_parcel_, parcel_;  // of held_; of the group that was taken last
  std::vector<int64_t> taken_;
  std::vector<int> lost_workers_;
};

}  // namespace tlt::cluster

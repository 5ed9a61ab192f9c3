// Coordinator: which worker rolls out which group of an RL step, and who is busy, idle or lost.
//
// A pure state machine: events and the time go in, commands come out. Rank 0 runs it behind sockets
// (control.h).
//
// A group waits in the queue of the worker it was dealt to, or in the common queue once its worker
// was lost. The head of a queue is given one ahead, so an engine with room need not wait for an
// answer. A hungry worker (its engine has room and it holds nothing) takes from its own queue, then
// from the common one, then from the longest other queue. When only groups given ahead are left,
// one is asked back (Recall). Its worker answers Started or Returned, never both: it decides under
// the lock under which its engine takes. A group given to a hungry worker is never asked back, so a
// group does not wander.
//
// Idle workers are promoted to drafter training once there are `min_workers_for_training` of them;
// a worker that becomes idle later joins at once. What ends its training is a group for it, or the
// end of the step, and nothing that another worker does (docs/paper_map.md); the others go on.
//
// When nothing is left to start, and a worker has no more unfinished sequences than another one has
// room for (it says so: where a few rows more cost it little), it moves its own there and falls
// idle earlier. It answers with a parcel, or that all it had is done. From then on its groups are
// done and the parcel is as a group: it runs at the other, and where that one is lost a third
// worker gets it, for it is kept here until it is done. One move at a time; nothing waits for it.
//
// Owns       the state of the groups of the current step and of the workers.
// Not here   sockets and threads (control.h); the worker's half (worker_protocol.h).
// Threading  none of its own; external synchronization.
// Invariant  a group is in exactly one place: a queue, given to one worker, running at one, done.
//
//   Coordinator coordinator(workers, lost_after_seconds, /*min_workers_for_training=*/1, now);
//   for (const Command& command : coordinator.on(event, now)) send(command);
//   for (const Command& command : coordinator.tick(now)) send(command);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/messages.h"

namespace tlt::cluster {

enum class WorkerState {
  kBusy,
  kIdle,      // hungry, and nothing runs or is on its way
  kTraining,  // idle and promoted to drafter training
  kLost,      // silent for too long; for good
};

class Coordinator {
 public:
  // min_workers_for_training: 0: nobody trains.
  Coordinator(int workers, double lost_after_seconds, int64_t min_workers_for_training, double now);

  // Begins a step in which worker w starts with the groups shares[w]. kBegin does it with deal().
  // REQUIRES: the step before is done; no group twice.
  std::vector<Command> begin_step(int64_t step, const std::vector<std::vector<int64_t>>& shares);

  // A worker said something. An event of an older step only shows that the worker lives.
  std::vector<Command> on(const Event& event, double now);

  // Gives up workers that were silent for lost_after_seconds; others get their groups, started or
  // not. A group that was done stays done. Call it often: after a pause of its own, everyone gets
  // the full time again.
  std::vector<Command> tick(double now);

  WorkerState state(int worker) const;
  int workers_in(WorkerState state) const;
  int64_t step() const { return step_; }
  bool is_step_done() const { return done_.size() == groups_.size(); }

  // Throws Error where the invariant does not hold.
  void check_invariant() const;

  // Groups 0 … groups-1 to the workers in turn: {{0, 2}, {1}} for 3 groups and 2 workers.
  static std::vector<std::vector<int64_t>> deal(int64_t groups, int workers);

 private:
  friend class CoordinatorPeer;  // tests plant faults

  struct Given {
    int64_t group = -1;
    bool wanted = false;  // the worker was hungry: not to be asked back
    bool recalled = false;
  };
  struct Worker {
    double last_heard = 0;
    bool lost = false;
    bool joined = false;  // has begun the current step
    bool hungry = false;
    bool trains = false;  // was promoted, and has had no group since
    std::deque<int64_t> queue;
    std::optional<Given> given;
    std::set<int64_t> running;
    std::optional<Load> load;  // of what runs, where that is said
  };
  struct Move {
    int from = 0, to = 0;
  };
  using Commands = std::vector<Command>;

  void join(int worker, Commands& out);
  void take(int worker);
  void started(int worker, int64_t group);
  void returned(int worker, int64_t group);
  void done(int worker, int64_t group, Commands& out);
  void moved(int worker, const std::string& parcel, Commands& out);
  void lose(int worker, Commands& out);
  void settle(Commands& out);  // gives what can be given, asks back what is needed elsewhere
  void consolidate(Commands& out);
  std::optional<Move> find_move() const;
  bool has_unstarted() const;
  void promote(Commands& out);
  bool is_idle(const Worker& worker) const;
  std::optional<int64_t> next_for_hungry(Worker& worker);  // takes it out of its queue
  void give(int worker, int64_t group, bool wanted, Commands& out);
  void say(Command::Kind kind, int worker, int64_t group, Commands& out) const;
  void announce_step_done(Commands& out) const;

  const double lost_after_seconds_;
  const int64_t min_workers_for_training_;
  double last_tick_;
  int64_t step_ = -1;
  std::vector<Worker> workers_;
  std::deque<int64_t> common_;  // of lost workers
  int64_t first_parcel_ = 0;    // groups before parcels
  std::set<int64_t> groups_;    // of this step, and its parcels
  std::set<int64_t> done_;
  std::map<int64_t, std::string> parcels_;  // that are not done
  std::optional<Move> move_;                // asked for and not answered
};

}  // namespace tlt::cluster

// Coordinator: decides which worker rolls out which group of an RL step, and tracks which workers
// are busy, idle, training or lost.
//
// A pure state machine: takes events and the time, returns commands. Rank 0 runs it with sockets
// around it (control.h).
//
// Groups are assigned round robin to the workers' queues. The groups of a lost worker go to the
// common queue. The first group of a queue is prefetched: sent to its worker before a request, so
// an engine with free capacity does not wait. A requesting worker (free capacity, holds no group)
// takes from its own queue, then from the common one, then from the longest other queue. When only
// prefetched groups are left, one is recalled. Its worker answers Started or Returned, never both:
// it decides under the lock under which its engine takes groups. A group given to a requesting
// worker is never recalled, so no group is reassigned twice.
//
// Idle workers are promoted to training the draft model once there are `min_workers_for_training`
// of them; a worker that becomes idle later joins at once. Training ends on a worker when it gets a
// group or the step ends; events of other workers do not end it (docs/paper_map.md).
//
// Migration: when no group is left to start, and the unfinished sequences of a worker fit into the
// capacity that another one reports (worker_loads.h), they migrate there, so the first worker is
// idle earlier. It answers with the migration, or that all its groups are done. From then on its
// groups are done and the migration is treated as a group. The coordinator keeps its bytes until it
// is done, so a third worker can resume it if the second one is lost. At most one migration is
// pending, and nothing waits for it.
//
// Finished groups travel from busy workers to idle ones, which compute their gradients
// (group_exchange.h).
//
// Stop: when a worker is interrupted it asks for the end of the step. If the step is not done, it
// ends there: every worker gets kStop, later events of the step are ignored, and its groups are
// dropped. So each worker learns of each step either that it is done or that it was stopped, and
// all learn the same. If the step is done, the others only learn that one was interrupted.
//
// Owns       the state of the groups of the current step and of the workers.
// Not here   sockets and threads (control.h); the worker's half (worker_protocol.h).
// Threading  none of its own; external synchronization.
// Invariant  a group is in exactly one place: a queue, given to a worker, running at one, done.
//
//   Coordinator coordinator(workers, lost_after_seconds, /*min_workers_for_training=*/1, now);
//   for (const WorkerCommand& command : coordinator.on(event, now)) send(command);
//   for (const WorkerCommand& command : coordinator.tick(now)) send(command);
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

#include "cluster/group_exchange.h"
#include "cluster/messages.h"
#include "cluster/worker_loads.h"

namespace tlt::cluster {

enum class WorkerState {
  kBusy,
  kIdle,      // requesting; no group runs or is on its way
  kTraining,  // idle and promoted to training the draft model
  kLost,      // silent for too long; permanent
};

class Coordinator {
 public:
  // min_workers_for_training: 0: no worker trains.
  Coordinator(int workers, double lost_after_seconds, int64_t min_workers_for_training, double now);

  // Begins a step in which worker w starts with the groups shares[w]. A kBegin event does it with
  // round_robin(). REQUIRES: the previous step is done; no group occurs twice.
  std::vector<WorkerCommand> begin_step(int64_t step,
                                        const std::vector<std::vector<int64_t>>& shares);

  // Handles an event of a worker. An event of an older step only shows that the worker is alive.
  std::vector<WorkerCommand> on(const Event& event, double now);

  // Marks workers as lost that were silent for lost_after_seconds while the step has unfinished
  // groups; those of theirs, started or not, go to others. Between two steps nothing is decided:
  // collectives have a bound of their own. Call it often: after a pause between calls, every worker
  // gets the full time again.
  std::vector<WorkerCommand> tick(double now);

  // Whether there is a connection to the worker. Without one for kGoneSeconds it is lost before
  // lost_after_seconds: a process that ended closes it, and one that lives connects again at once.
  void set_connected(int worker, bool is_connected, double now);
  static constexpr double kGoneSeconds = 3;

  // Marks a worker as lost that others have found to be lost; its groups go to others.
  std::vector<WorkerCommand> lose(int worker);

  WorkerState state(int worker) const;
  // Whether a worker is lost, or was silent or not connected for as long as that takes, between two
  // steps too.
  bool is_silent(int worker, double now) const;
  int64_t step() const { return step_; }
  // Or stopped.
  bool is_step_done() const { return is_stopped_ || done_.size() == groups_.size(); }

  // Throws Error if the invariant is violated.
  void check_invariant() const;

  // Assigns groups 0 … groups-1 round robin: {{0, 2}, {1}} for 3 groups and 2 workers.
  static std::vector<std::vector<int64_t>> round_robin(int64_t groups, int workers);
  // How many of them are a worker's.
  static int64_t share_of(int worker, int64_t groups, int workers) {
    return groups / workers + (worker < groups % workers ? 1 : 0);
  }

 private:
  friend class CoordinatorPeer;  // tests inject faults

  struct Given {
    int64_t group = -1;
    bool wanted = false;  // the worker requests it: it is not recalled
    bool recalled = false;
  };
  // What decisions need to know of a worker.
  struct Marks {
    bool is_requesting = false, has_given = false;
    bool is_prefetched = false, is_recalled = false;  // its given group; a wanted one is neither
    bool may_prefetch = false;
    bool is_idle = false, is_promotable = false;  // if the step is not done
    int64_t queued = 0;
    bool operator==(const Marks&) const = default;
  };
  struct Worker {
    double last_heard = 0;    // or the end of the last time in which nothing was decided
    double last_message = 0;  // or the end of a pause between calls of tick()
    std::optional<double> disconnected_at;
    bool lost = false;
    bool joined = false;  // has begun the current step
    bool requesting = false;
    bool trains = false;  // promoted, and got no group since
    std::deque<int64_t> queue;
    std::optional<Given> given;
    std::set<int64_t> running;
    Marks marks = {};  // as of the last note()
  };
  using Commands = std::vector<WorkerCommand>;

  void apply(const Event& event, Commands& out);  // of the current step
  void join(int worker, Commands& out);
  void take(int worker);
  void started(int worker, int64_t group);
  void returned(int worker, int64_t group);
  void done(int worker, int64_t group, Commands& out);
  void migrated(int worker, const std::string& migration, Commands& out);
  void handed_over(const Event& event, Commands& out);
  void stop(Commands& out);
  void drop_groups();
  void lose(int worker, Commands& out);
  static Marks marks_of(const Worker& worker);
  void note(int worker);       // after a change of what its marks tell
  void settle(Commands& out);  // gives queued groups, recalls prefetched ones
  void recall(size_t wanted, Commands& out);
  void consolidate(Commands& out);
  bool has_queued() const { return queued_ > 0 || !common_.empty(); }
  bool has_unstarted() const { return has_queued() || given_ > 0; }
  void promote(Commands& out);
  bool is_idle(const Worker& worker) const;
  bool is_gone(const Worker& worker, double now) const;
  // Removes it from its queue. REQUIRES: has_queued().
  int64_t next_group_for(int worker);
  void give(int worker, int64_t group, bool wanted, Commands& out);
  void say(WorkerCommand::Kind kind, int worker, int64_t group, Commands& out) const;
  void announce_step_done(Commands& out) const;

  const double lost_after_seconds_;
  const int64_t min_workers_for_training_;
  double last_tick_;
  int64_t step_ = -1;
  bool is_interrupted_ = false;  // a worker has sent kStop in this step
  bool is_stopped_ = false;      // and the step was not done
  std::vector<Worker> workers_;
  WorkerLoads loads_;  // of the groups that run
  // The workers with these marks, and sums of them: an event is handled without looking at all.
  std::set<int> requesting_, to_prefetch_, prefetched_, promotable_;
  int64_t queued_ = 0, given_ = 0, recalled_ = 0, idle_ = 0;
  std::deque<int64_t> common_;   // groups of lost workers
  int64_t first_migration_ = 0;  // id; smaller ids are groups
  std::set<int64_t> groups_;     // ids of this step, migrations included
  std::set<int64_t> done_;
  std::map<int64_t, std::string> migrations_;   // bytes of those not done
  std::optional<Migration> pending_migration_;  // requested and not answered
  GroupExchange exchange_;
};

}  // namespace tlt::cluster

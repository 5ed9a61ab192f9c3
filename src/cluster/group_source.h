// GroupSource: the groups that this worker rolls out in an RL step.
//
// The prompts of a step are its groups 0 … groups-1. Every group comes out of exactly one worker's
// source, unless a worker is lost: then its groups come out of another worker's source again. If a
// worker is asked to migrate its unfinished sequences, they come out of another worker's source as
// one migration: a group with an id of `groups` or more.
//
// Not here   what a group is; its responses.
// Threading  one thread.
//
//   source.begin_step(step, groups);
//   while (!source.step_done()) {
//     while (engine.has_room())
//       if (auto group = source.try_take()) engine.add(*group); else break;
//     if (engine.is_empty()) source.wait_for_news(0.01);
//     else for (int64_t group : engine.step()) source.done(group);
//   }
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/messages.h"

namespace tlt::cluster {

class GroupSource {
 public:
  virtual ~GroupSource() = default;

  // Every worker begins every step with the same number of groups. REQUIRES: step_done() of the
  // previous step.
  virtual void begin_step(int64_t step, int64_t groups) = 0;

  // Returns the next group to start; call it only if it will be started at once. nullopt: none now,
  // perhaps later. Takes some microseconds: a request is answered at a later call.
  [[nodiscard]] virtual std::optional<int64_t> try_take() = 0;

  // REQUIRES: the group was taken here.
  virtual void done(int64_t group) = 0;

  // True if the next try_take() returns a migration, which needs no free capacity. take_migration()
  // returns the bytes of the migration that try_take() returned last.
  [[nodiscard]] virtual bool has_migration() { return false; }
  [[nodiscard]] virtual std::string take_migration() { return {}; }

  // Reports what is left of the groups taken here; the coordinator decides on migrations with it.
  // Call it whenever the load may have changed.
  virtual void report(const WorkerLoad&) {}
  // True while the coordinator requests this worker's unfinished sequences: call move() with all of
  // them, between two engine steps. False again once nothing is left.
  [[nodiscard]] virtual bool should_migrate() { return false; }
  // Ends the groups taken here, except for what `migration` holds. REQUIRES: should_migrate().
  // NOLINTNEXTLINE(performance-unnecessary-value-param): sources that send it move from it.
  virtual void move(std::string /*migration*/) {}

  // Finished groups whose gradients another worker may compute (group_exchange.h). offer(): how
  // many this worker has and has not begun. While should_hand_over(): call hand_over() with the
  // rollouts of one of them, from then on another worker's, or with nothing. take_finished(): the
  // rollouts of another worker's group, which is then this worker's; empty: none yet.
  virtual void offer(int64_t /*groups*/) {}
  [[nodiscard]] virtual bool should_hand_over() { return false; }
  // NOLINTNEXTLINE(performance-unnecessary-value-param): sources that send it move from it.
  virtual void hand_over(std::string /*rollouts*/) {}
  [[nodiscard]] virtual std::string take_finished() { return {}; }

  // This worker was interrupted: requests that the step ends for all workers as it is. Call it
  // again and again; without effect on a step that is done, but the others learn of it.
  virtual void stop() = 0;
  // Whether any worker has called stop() in this step or after it.
  [[nodiscard]] virtual bool is_interrupted() = 0;
  // True if the step ended by stop(), before all of its groups were done; all workers get the same
  // answer. Then done() and move() have no effect. REQUIRES: step_done().
  [[nodiscard]] virtual bool was_stopped() = 0;

  // True if every group of the step is done, on all workers, or the step was stopped. Throws Error
  // if the coordinator is gone or has marked this worker as lost.
  [[nodiscard]] virtual bool step_done() = 0;

  // Returns when the result of try_take() or step_done() may have changed, or after `seconds`.
  virtual void wait_for_news(double seconds) = 0;

  // True while the coordinator lets this worker train the draft model: it and enough other workers
  // have nothing to roll out. False again when a group arrives or the step is done.
  [[nodiscard]] virtual bool may_train() { return false; }
  // The time when may_train() last became false, in seconds of steady_clock().
  virtual double training_ended_at() { return 0; }

  // Workers lost so far. Collectives succeed only without them.
  [[nodiscard]] virtual std::vector<int> lost_workers() = 0;
  // Whether nothing was heard of a worker for the time after which it counts as lost, or it is
  // lost. Known on rank 0; the others know it of rank 0 only.
  [[nodiscard]] virtual bool is_silent(int /*worker*/) { return false; }
  // The worker is known to be lost: others get its groups. No effect on other ranks than 0.
  virtual void lose(int /*worker*/) {}
};

// The source of a solo run: all groups, in order.
class LocalGroups final : public GroupSource {
 public:
  void begin_step(int64_t step, int64_t groups) override;
  [[nodiscard]] std::optional<int64_t> try_take() override;
  void done(int64_t group) override;
  void stop() override;
  [[nodiscard]] bool is_interrupted() override { return is_interrupted_; }
  [[nodiscard]] bool was_stopped() override { return was_stopped_; }
  [[nodiscard]] bool step_done() override {
    return was_stopped_ || (next_ == groups_ && running_.empty());
  }
  void wait_for_news(double) override {}
  [[nodiscard]] std::vector<int> lost_workers() override { return {}; }

 private:
  int64_t step_ = -1;
  int64_t next_ = 0;
  int64_t groups_ = 0;
  std::set<int64_t> running_;
  bool is_interrupted_ = false, was_stopped_ = false;
};

}  // namespace tlt::cluster

// GroupSource: the groups that this worker rolls out in an RL step.
//
// The prompts of a step make its groups 0 … groups-1. Every group comes out of exactly one worker's
// source, unless a worker is lost: then its groups come out of another one again. Where a worker is
// asked to move what it has begun, the rest of its groups comes out of another one's source as one
// parcel: a group whose number is `groups` or more.
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
  // step before.
  virtual void begin_step(int64_t step, int64_t groups) = 0;

  // The next group to start; call it only when it will be started at once. nullopt: none now,
  // perhaps later. Takes some microseconds: an answer still on its way is there at a later call.
  [[nodiscard]] virtual std::optional<int64_t> try_take() = 0;

  // REQUIRES: the group was taken here.
  virtual void done(int64_t group) = 0;

  // The bytes of the parcel that try_take() gave last. While has_parcel(), try_take() gives one,
  // and there need not be room for it.
  [[nodiscard]] virtual bool has_parcel() { return false; }
  [[nodiscard]] virtual std::string take_parcel() { return {}; }

  // What is left of the groups taken here, for the coordinator to see whether it should move. Call
  // it as often as there is something new.
  virtual void report(const Load&) {}
  // The coordinator wants what is left here to go on elsewhere: call move() with all of it, between
  // two engine steps. False again once there is nothing left.
  [[nodiscard]] virtual bool is_asked_to_move() { return false; }
  // The groups taken here are done but for what is in the parcel. REQUIRES: is_asked_to_move().
  virtual void move(std::string /*parcel*/) {}

  // Every group of the step is done, at whichever worker. Throws Error when the coordinator is
  // gone, or has given this worker up.
  [[nodiscard]] virtual bool step_done() = 0;

  // Returns when try_take() or step_done() may have something new to say, or after `seconds`.
  virtual void wait_for_news(double seconds) = 0;

  // The coordinator lets this worker train the drafter: it has nothing to roll out, and enough
  // others have nothing either. False again once there is work for it, or the step is done.
  [[nodiscard]] virtual bool may_train() { return false; }
  // When may_train() last became false, in seconds of steady_clock().
  virtual double training_ended_at() { return 0; }

  // Workers that were lost so far. Collectives cannot succeed any more once there is one.
  [[nodiscard]] virtual std::vector<int> lost_workers() = 0;
};

// The source of a solo run: all groups, in order.
class LocalGroups final : public GroupSource {
 public:
  void begin_step(int64_t step, int64_t groups) override;
  [[nodiscard]] std::optional<int64_t> try_take() override;
  void done(int64_t group) override;
  [[nodiscard]] bool step_done() override { return next_ == groups_ && running_.empty(); }
  void wait_for_news(double) override {}
  [[nodiscard]] std::vector<int> lost_workers() override { return {}; }

 private:
  int64_t step_ = -1;
  int64_t next_ = 0;
  int64_t groups_ = 0;
  std::set<int64_t> running_;
};

}  // namespace tlt::cluster

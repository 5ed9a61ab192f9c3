// GroupSource: the groups that this worker rolls out in an RL step.
//
// The prompts of a step make its groups 0 … groups-1. Every group comes out of exactly one worker's
// source, unless a worker is lost: then its groups come out of another one again.
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
#include <vector>

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

// SPDX-License-Identifier: Apache-2.0
#include "cluster/worker_protocol.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tlt::cluster {
namespace {

// Mean growth per sequence after which the load is reported again.
constexpr int64_t kNewsTokens = 64;

}  // namespace

void WorkerProtocol::begin_step(int64_t step, int64_t groups, std::vector<Event>& out) {
  TLT_CHECK(step_done_ && step > step_, "step ", step, " begins after step ", step_,
            step_done_ ? "" : ", which is not done");
  TLT_CHECK(groups >= 0, groups);
  step_ = step;
  groups_ = groups;
  step_done_ = requested_ = may_train_ = should_migrate_ = wants_ = false;
  was_stopped_ = is_interrupted_ = stop_sent_ = false;
  offered_ = 0;
  hand_over_to_.clear();
  finished_.clear();
  reported_ = {};
  held_.reset();
  taken_.clear();
  out.push_back(event(Event::Kind::kBegin, groups));
}

std::optional<int64_t> WorkerProtocol::try_take(std::vector<Event>& out) {
  if (step_done_) return std::nullopt;
  if (!held_) {
    if (!requested_) out.push_back(event(Event::Kind::kTake, -1));
    requested_ = true;
    return std::nullopt;
  }
  const int64_t group = *held_;
  held_.reset();
  migration_ = std::move(held_migration_);
  taken_.push_back(group);
  out.push_back(event(Event::Kind::kStarted, group));
  return group;
}

void WorkerProtocol::done(int64_t group, std::vector<Event>& out) {
  if (was_stopped_) return;
  const auto found = std::find(taken_.begin(), taken_.end(), group);
  TLT_CHECK(found != taken_.end(), "group ", group, " is done but does not run here");
  taken_.erase(found);
  if (taken_.empty()) should_migrate_ = false;
  out.push_back(event(Event::Kind::kDone, group));
}

std::string WorkerProtocol::take_migration() { return std::exchange(migration_, {}); }

void WorkerProtocol::report(const WorkerLoad& load, std::vector<Event>& out) {
  if (taken_.empty()) return;
  if (load.sequences == reported_.sequences &&
      load.tokens < reported_.tokens + kNewsTokens * load.sequences)
    return;
  reported_ = load;
  out.push_back(event(Event::Kind::kLoad, -1));
  out.back().load = load;
}

void WorkerProtocol::move(std::string migration, std::vector<Event>& out) {
  if (was_stopped_) return;
  TLT_CHECK(should_migrate_);
  should_migrate_ = false;
  reported_ = {};
  taken_.clear();
  out.push_back(event(Event::Kind::kMigrated, -1));
  out.back().migration = std::move(migration);
}

void WorkerProtocol::offer(int64_t groups, std::vector<Event>& out) {
  if (step_done_ || std::exchange(offered_, groups) == groups) return;
  out.push_back(event(Event::Kind::kOffer, groups));
}

std::string WorkerProtocol::take_finished(std::vector<Event>& out) {
  if (finished_.empty() && !step_done_ && !std::exchange(wants_, true))
    out.push_back(event(Event::Kind::kWant, -1));
  if (finished_.empty()) return {};
  std::string rollouts = std::move(finished_.front());
  finished_.pop_front();
  return rollouts;
}

void WorkerProtocol::hand_over(std::string rollouts, std::vector<Event>& out) {
  TLT_CHECK(should_hand_over());
  offered_ = rollouts.empty() ? 0 : offered_ - 1;  // as the coordinator counts
  out.push_back(event(Event::Kind::kHandedOver, hand_over_to_.front()));
  out.back().migration = std::move(rollouts);
  hand_over_to_.pop_front();
}

void WorkerProtocol::stop(std::vector<Event>& out) {
  if (stop_sent_ || is_interrupted_) return;
  stop_sent_ = true;
  out.push_back(event(Event::Kind::kStop, -1));
}

void WorkerProtocol::stopped() {
  is_interrupted_ = true;
  if (step_done_) return;
  step_done_ = was_stopped_ = true;
  may_train_ = should_migrate_ = false;
  held_.reset();
  taken_.clear();
}

bool WorkerProtocol::handles_in_any_step(const WorkerCommand& command) {
  switch (command.kind) {
    case WorkerCommand::Kind::kExit:
      given_up_ = true;
      may_train_ = false;
      return true;
    case WorkerCommand::Kind::kLost:
      if (const auto worker = static_cast<int>(command.group);
          std::ranges::count(lost_workers_, worker) == 0)
        lost_workers_.push_back(worker);
      return true;
    case WorkerCommand::Kind::kAlive:
      return true;
    default:
      return false;
  }
}

void WorkerProtocol::on(const WorkerCommand& command, std::vector<Event>& out) {
  if (handles_in_any_step(command) || command.step != step_) return;
  switch (command.kind) {
    case WorkerCommand::Kind::kGive:
      TLT_CHECK(!held_, "group ", command.group, " while group ", *held_, " waits");
      held_ = command.group;
      held_migration_ = command.migration;
      requested_ = may_train_ = wants_ = false;
      return;
    case WorkerCommand::Kind::kRecall:
      if (held_ != command.group) return;  // the engine has started it
      held_.reset();
      out.push_back(event(Event::Kind::kReturned, command.group));
      return;
    case WorkerCommand::Kind::kStepDone:
      TLT_CHECK(!held_ && taken_.empty(), "step ", step_, " is done but groups are left here");
      step_done_ = true;
      may_train_ = false;
      return;
    case WorkerCommand::Kind::kStop:
      stopped();
      return;
    case WorkerCommand::Kind::kTrain:
      may_train_ = true;
      return;
    case WorkerCommand::Kind::kMigrate:
      should_migrate_ = !taken_.empty();  // else kDone events for all groups are on their way
      return;
    case WorkerCommand::Kind::kHandOver:
      hand_over_to_.push_back(command.group);
      return;
    case WorkerCommand::Kind::kFinished:
      finished_.push_back(command.migration);
      wants_ = false;
      return;
    default:
      return;
  }
}

}  // namespace tlt::cluster

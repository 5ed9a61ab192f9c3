// SPDX-License-Identifier: Apache-2.0
#include "cluster/coordinator.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"

namespace tlt::cluster {
namespace {

void put(std::set<int>& workers, int worker, bool is_in) {
  if (is_in)
    workers.insert(worker);
  else
    workers.erase(worker);
}

}  // namespace

Coordinator::Coordinator(int workers, double lost_after_seconds, int64_t min_workers_for_training,
                         double now)
    : lost_after_seconds_(lost_after_seconds),
      min_workers_for_training_(min_workers_for_training),
      last_tick_(now),
      workers_(workers),
      loads_(workers),
      exchange_(workers) {
  TLT_CHECK(workers >= 1 && lost_after_seconds > 0 && min_workers_for_training >= 0, workers,
            " workers, lost after ", lost_after_seconds, ", ", min_workers_for_training, " train");
  for (Worker& worker : workers_) worker.last_heard = worker.last_message = now;
}

std::vector<std::vector<int64_t>> Coordinator::round_robin(int64_t groups, int workers) {
  TLT_CHECK(groups >= 0 && groups < int64_t{1} << 24, groups, " groups");
  std::vector<std::vector<int64_t>> shares(workers);
  for (int64_t group = 0; group < groups; ++group) shares[group % workers].push_back(group);
  return shares;
}

std::vector<WorkerCommand> Coordinator::begin_step(
    int64_t step, const std::vector<std::vector<int64_t>>& shares) {
  TLT_CHECK(step > step_ && is_step_done(), "step ", step, " begins while step ", step_,
            " is not done");
  TLT_CHECK(shares.size() == workers_.size(), shares.size());
  step_ = step;
  is_interrupted_ = is_stopped_ = false;
  groups_.clear();
  done_.clear();
  migrations_.clear();
  pending_migration_.reset();
  exchange_.begin_step();
  loads_.clear();
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    worker.joined = worker.requesting = worker.trains = false;
    std::deque<int64_t>& queue = worker.lost ? common_ : worker.queue;
    for (const int64_t group : shares[i]) {
      TLT_CHECK(groups_.insert(group).second, "group ", group, " twice");
      queue.push_back(group);
    }
    note(static_cast<int>(i));
  }
  first_migration_ = groups_.empty() ? 0 : *groups_.rbegin() + 1;
  return {};
}

std::vector<WorkerCommand> Coordinator::on(const Event& event, double now) {
  TLT_CHECK(event.worker >= 0 && event.worker < static_cast<int>(workers_.size()), "worker ",
            event.worker);
  Commands out;
  Worker& worker = workers_[event.worker];
  if (worker.lost) {
    say(WorkerCommand::Kind::kExit, event.worker, -1, out);
    return out;
  }
  worker.last_heard = worker.last_message = now;
  if (event.kind == Event::Kind::kHeartbeat) {
    say(WorkerCommand::Kind::kAlive, event.worker, -1, out);
    return out;
  }
  if (event.step < step_) {
    // The worker begins a step that the others have finished without it.
    if (event.kind == Event::Kind::kBegin)
      out.push_back(
          {.kind = WorkerCommand::Kind::kStepDone, .worker = event.worker, .step = event.step});
    return out;
  }
  if (event.kind == Event::Kind::kBegin && event.step > step_)
    begin_step(event.step, round_robin(event.group, static_cast<int>(workers_.size())));
  TLT_CHECK(event.step == step_, "worker ", event.worker, " is in step ", event.step, ", not in ",
            step_);
  if (is_stopped_ && event.kind != Event::Kind::kBegin) return out;  // sent before it knew
  apply(event, out);
  note(event.worker);
  settle(out);
  if (event.kind == Event::Kind::kTake && worker.requesting)
    say(WorkerCommand::Kind::kNoWork, event.worker, -1, out);
  return out;
}

void Coordinator::apply(const Event& event, Commands& out) {
  switch (event.kind) {
    case Event::Kind::kBegin:
      TLT_CHECK(event.group == first_migration_, "worker ", event.worker, " begins step ", step_,
                " with ", event.group, " groups, others with ", first_migration_);
      join(event.worker, out);
      break;
    case Event::Kind::kTake:
      take(event.worker);
      break;
    case Event::Kind::kStarted:
      started(event.worker, event.group);
      break;
    case Event::Kind::kReturned:
      returned(event.worker, event.group);
      break;
    case Event::Kind::kDone:
      done(event.worker, event.group, out);
      break;
    case Event::Kind::kLoad:
      if (!workers_[event.worker].running.empty()) loads_.report(event.worker, event.load);
      break;
    case Event::Kind::kMigrated:
      migrated(event.worker, event.migration, out);
      break;
    case Event::Kind::kOffer:
      exchange_.offer(event.worker, event.group);
      break;
    case Event::Kind::kWant:
      exchange_.want(event.worker);
      break;
    case Event::Kind::kHandedOver:
      handed_over(event, out);
      break;
    case Event::Kind::kStop:
      stop(out);
      break;
    case Event::Kind::kHeartbeat:
      break;
  }
}

void Coordinator::stop(Commands& out) {
  if (is_interrupted_) return;
  is_interrupted_ = true;
  is_stopped_ = !is_step_done();
  if (is_stopped_) drop_groups();
  for (size_t i = 0; i < workers_.size(); ++i)
    if (workers_[i].joined && !workers_[i].lost)
      say(WorkerCommand::Kind::kStop, static_cast<int>(i), -1, out);
}

// Of a step that was stopped.
void Coordinator::drop_groups() {
  common_.clear();
  groups_.clear();
  done_.clear();
  migrations_.clear();
  pending_migration_.reset();
  loads_.clear();
  for (Worker& worker : workers_) {
    worker.queue.clear();
    worker.given.reset();
    worker.running.clear();
    worker.requesting = worker.trains = false;
    note(static_cast<int>(&worker - workers_.data()));
  }
}

std::vector<WorkerCommand> Coordinator::tick(double now) {
  Commands out;
  // After a pause the events of that time are still queued.
  const bool was_paused = now - last_tick_ > lost_after_seconds_ / 2;
  const bool decides = !was_paused && !is_step_done();
  last_tick_ = now;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (!decides) worker.last_heard = now;
    if (was_paused) {
      worker.last_message = now;
      worker.disconnected_at.reset();
    }
    const bool is_silent = now - worker.last_heard > lost_after_seconds_;
    if (!worker.lost && (is_silent || (decides && is_gone(worker, now))))
      lose(static_cast<int>(i), out);
  }
  settle(out);
  return out;
}

std::vector<WorkerCommand> Coordinator::lose(int worker) {
  Commands out;
  if (workers_.at(static_cast<size_t>(worker)).lost) return out;
  lose(worker, out);
  settle(out);
  return out;
}

bool Coordinator::is_silent(int worker, double now) const {
  const Worker& it = workers_.at(static_cast<size_t>(worker));
  return it.lost || now - it.last_message > lost_after_seconds_ || is_gone(it, now);
}

bool Coordinator::is_gone(const Worker& worker, double now) const {
  return worker.disconnected_at && now - *worker.disconnected_at > kGoneSeconds;
}

void Coordinator::set_connected(int worker, bool is_connected, double now) {
  std::optional<double>& at = workers_.at(static_cast<size_t>(worker)).disconnected_at;
  if (is_connected)
    at.reset();
  else if (!at)
    at = now;
}

WorkerState Coordinator::state(int worker) const {
  const Worker& it = workers_[worker];
  if (it.lost) return WorkerState::kLost;
  if (!is_idle(it)) return WorkerState::kBusy;
  return it.trains ? WorkerState::kTraining : WorkerState::kIdle;
}

bool Coordinator::is_idle(const Worker& worker) const {
  return marks_of(worker).is_idle && !is_step_done();
}

void Coordinator::join(int worker, Commands& out) {
  TLT_CHECK(!workers_[worker].joined, "worker ", worker, " begins step ", step_, " twice");
  workers_[worker].joined = true;
  for (size_t i = 0; i < workers_.size(); ++i)
    if (workers_[i].lost) say(WorkerCommand::Kind::kLost, worker, static_cast<int64_t>(i), out);
  if (is_step_done() && !is_stopped_) say(WorkerCommand::Kind::kStepDone, worker, -1, out);
  if (is_interrupted_) say(WorkerCommand::Kind::kStop, worker, -1, out);
}

void Coordinator::take(int worker) {
  Worker& it = workers_[worker];
  TLT_CHECK(it.joined && !it.requesting, "worker ", worker, " requests twice");
  if (is_step_done()) return;
  if (it.given)
    it.given->wanted = true;  // requested while the group was on its way
  else
    it.requesting = true;
}

void Coordinator::started(int worker, int64_t group) {
  Worker& it = workers_[worker];
  TLT_CHECK(it.given && it.given->group == group, "worker ", worker, " started group ", group,
            ", which it was not given");
  it.given.reset();
  loads_.forget(worker);  // the report is out of date
  TLT_CHECK(it.running.insert(group).second, group);
}

void Coordinator::returned(int worker, int64_t group) {
  Worker& it = workers_[worker];
  TLT_CHECK(it.given && it.given->group == group && it.given->recalled, "worker ", worker,
            " returned group ", group, ", which was not recalled");
  it.given.reset();  // also if requested: a worker with free capacity requests again
  it.queue.push_front(group);
}

void Coordinator::done(int worker, int64_t group, Commands& out) {
  Worker& it = workers_[worker];
  TLT_CHECK(it.running.erase(group) == 1, "group ", group, " is done at worker ", worker,
            ", where it does not run");
  TLT_CHECK(done_.insert(group).second, group);
  migrations_.erase(group);
  if (it.running.empty()) {
    loads_.forget(worker);
    // Nothing is left to migrate.
    if (pending_migration_ && pending_migration_->from == worker) pending_migration_.reset();
  }
  if (is_step_done()) announce_step_done(out);
}

void Coordinator::migrated(int worker, const std::string& migration, Commands& out) {
  Worker& it = workers_[worker];
  TLT_CHECK(pending_migration_ && pending_migration_->from == worker && !it.running.empty(),
            "worker ", worker, " migrates without a request");
  TLT_CHECK(!migration.empty(), "worker ", worker, " migrates nothing");
  const int64_t id = *groups_.rbegin() + 1;
  groups_.insert(id);
  migrations_[id] = migration;
  for (const int64_t group : it.running) {
    done_.insert(group);
    migrations_.erase(group);
  }
  it.running.clear();
  loads_.forget(worker);
  const int to = pending_migration_->to;
  pending_migration_.reset();
  // If the intended worker has other work by now, any requesting worker gets it.
  if (workers_[to].lost || workers_[to].given)
    common_.push_front(id);
  else
    give(to, id, /*wanted=*/true, out);
}

void Coordinator::handed_over(const Event& event, Commands& out) {
  const int64_t to = event.group;
  TLT_CHECK(to >= 0 && to < std::ssize(workers_) && to != event.worker, "worker ", event.worker,
            " hands over a group to worker ", to);
  exchange_.handed_over(event.worker, static_cast<int>(to), !event.migration.empty());
  if (event.migration.empty() || workers_[to].lost) return;
  say(WorkerCommand::Kind::kFinished, static_cast<int>(to), -1, out);
  out.back().migration = event.migration;
}

void Coordinator::lose(int worker, Commands& out) {
  exchange_.lose(worker);
  Worker& it = workers_[worker];
  it.lost = true;
  it.requesting = it.trains = false;
  loads_.forget(worker);
  if (pending_migration_ && pending_migration_->from == worker) pending_migration_.reset();
  // Started groups come first: they lag the furthest.
  common_.insert(common_.end(), it.running.begin(), it.running.end());
  if (it.given) common_.push_back(it.given->group);
  common_.insert(common_.end(), it.queue.begin(), it.queue.end());
  it.running.clear();
  it.given.reset();
  it.queue.clear();
  note(worker);
  for (size_t i = 0; i < workers_.size(); ++i)
    if (workers_[i].joined && !workers_[i].lost)
      say(WorkerCommand::Kind::kLost, static_cast<int>(i), worker, out);
}

Coordinator::Marks Coordinator::marks_of(const Worker& worker) {
  const auto& given = worker.given;
  const bool is_idle = worker.requesting && !given && worker.running.empty();
  return {.is_requesting = worker.requesting,
          .has_given = given.has_value(),
          .is_prefetched = given && !given->wanted && !given->recalled,
          .is_recalled = given && given->recalled,
          .may_prefetch = worker.joined && !worker.lost && !given && !worker.queue.empty(),
          .is_idle = is_idle,
          .is_promotable = is_idle && !worker.trains,
          .queued = std::ssize(worker.queue)};
}

void Coordinator::note(int worker) {
  const Marks now = marks_of(workers_[worker]), before = std::exchange(workers_[worker].marks, now);
  if (now == before) return;
  put(requesting_, worker, now.is_requesting);
  put(to_prefetch_, worker, now.may_prefetch);
  put(prefetched_, worker, now.is_prefetched);
  put(promotable_, worker, now.is_promotable);
  queued_ += now.queued - before.queued;
  given_ += now.has_given - before.has_given;
  recalled_ += now.is_recalled - before.is_recalled;
  idle_ += now.is_idle - before.is_idle;
}

void Coordinator::settle(Commands& out) {
  for (auto next = requesting_.begin(); next != requesting_.end() && has_queued();) {
    const int worker = *next++;
    give(worker, next_group_for(worker), /*wanted=*/true, out);
  }
  while (!to_prefetch_.empty()) {
    const int worker = *to_prefetch_.begin();
    const int64_t group = workers_[worker].queue.front();
    workers_[worker].queue.pop_front();
    give(worker, group, /*wanted=*/false, out);
  }
  if (!requesting_.empty()) recall(requesting_.size(), out);
  consolidate(out);
  promote(out);
  if (is_step_done()) return;
  while (const auto match = exchange_.next_match())
    say(WorkerCommand::Kind::kHandOver, match->from, match->to, out);
}

// Recalls prefetched groups until as many are on their way back.
void Coordinator::recall(size_t wanted, Commands& out) {
  for (auto next = prefetched_.begin();
       next != prefetched_.end() && recalled_ < static_cast<int64_t>(wanted);) {
    const int worker = *next++;
    workers_[worker].given->recalled = true;
    note(worker);
    say(WorkerCommand::Kind::kRecall, worker, workers_[worker].given->group, out);
  }
}

void Coordinator::consolidate(Commands& out) {
  if (pending_migration_ || has_unstarted()) return;
  pending_migration_ = loads_.find_migration();
  if (!pending_migration_) return;
  say(WorkerCommand::Kind::kMigrate, pending_migration_->from, -1, out);
}

void Coordinator::promote(Commands& out) {
  if (min_workers_for_training_ == 0 || is_step_done() || idle_ < min_workers_for_training_) return;
  while (!promotable_.empty()) {
    const int worker = *promotable_.begin();
    workers_[worker].trains = true;
    note(worker);
    say(WorkerCommand::Kind::kTrain, worker, -1, out);
  }
}

int64_t Coordinator::next_group_for(int worker) {
  std::deque<int64_t>* queue = !workers_[worker].queue.empty() ? &workers_[worker].queue : &common_;
  if (!queue->empty()) {
    const int64_t group = queue->front();
    queue->pop_front();
    return group;
  }
  const auto longest =
      std::ranges::max_element(workers_, {}, [](const Worker& it) { return it.queue.size(); });
  const int64_t group = longest->queue.back();  // its owner would reach it last
  longest->queue.pop_back();
  note(static_cast<int>(longest - workers_.begin()));
  return group;
}

void Coordinator::give(int worker, int64_t group, bool wanted, Commands& out) {
  workers_[worker].requesting = workers_[worker].trains = false;
  exchange_.end_want(worker);
  workers_[worker].given = Given{.group = group, .wanted = wanted};
  note(worker);
  say(WorkerCommand::Kind::kGive, worker, group, out);
  if (const auto migration = migrations_.find(group); migration != migrations_.end())
    out.back().migration = migration->second;
}

void Coordinator::say(WorkerCommand::Kind kind, int worker, int64_t group, Commands& out) const {
  out.push_back({.kind = kind, .worker = worker, .step = step_, .group = group});
}

void Coordinator::announce_step_done(Commands& out) const {
  for (size_t i = 0; i < workers_.size(); ++i)
    if (workers_[i].joined && !workers_[i].lost)
      say(WorkerCommand::Kind::kStepDone, static_cast<int>(i), -1, out);
}

void Coordinator::check_invariant() const {
  std::map<int64_t, std::vector<std::string>> places;
  const auto note = [&](const auto& groups, const std::string& place) {
    for (const int64_t group : groups) places[group].push_back(place);
  };
  note(common_, "common queue");
  note(done_, "done");
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    const std::string at = "worker " + std::to_string(i);
    note(worker.queue, "queue of " + at);
    note(worker.running, "running at " + at);
    if (worker.given) places[worker.given->group].push_back("given to " + at);
    TLT_CHECK(!worker.lost || (worker.queue.empty() && !worker.given && worker.running.empty()), at,
              " is lost and holds groups");
    TLT_CHECK(!(worker.requesting && worker.given), at, " is requesting and was given a group");
    TLT_CHECK(!worker.trains || is_step_done() || is_idle(worker), at, " trains and is not idle");
    TLT_CHECK(worker.joined || (!worker.given && worker.running.empty()), at,
              " has groups before it began the step");
  }
  for (const int64_t group : groups_)
    TLT_CHECK(places[group].size() == 1, "group ", group, " is in ", places[group].size(),
              " places",
              places[group].size() < 2 ? "" : ": " + places[group][0] + ", " + places[group][1]);
  TLT_CHECK(places.size() == groups_.size(), places.size(), " groups in places, ", groups_.size(),
            " in step ", step_);
  for (const int64_t group : groups_)
    TLT_CHECK((group >= first_migration_ && !done_.contains(group)) == migrations_.contains(group),
              "migration ", group, " is not kept as long as it is needed");
  for (const auto& [id, migration] : migrations_)
    TLT_CHECK(groups_.contains(id), "migration ", id, " is of no group");
  TLT_CHECK(!pending_migration_ ||
                (!workers_[static_cast<size_t>(pending_migration_->from)].lost &&
                 !workers_[static_cast<size_t>(pending_migration_->from)].running.empty()),
            "a worker without groups is asked to migrate");
  for (const Worker& worker : workers_)
    TLT_CHECK(worker.marks == marks_of(worker), "worker ", &worker - workers_.data(),
              " has changed and was not noted");
}

}  // namespace tlt::cluster

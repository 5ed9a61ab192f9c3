// Lost workers and checkpoints of Simulation.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/check.h"
#include "simulate/simulation.h"

namespace tlt::simulate {

// At the beginning of a step, as the others agree on who is in the group between two of them.
void Simulation::join_again() {
  const int64_t before = lost_;
  for (size_t i = 0; lost_ > 0 && i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    if (!worker.is_lost() || options_.rejoin_seconds <= 0 ||
        now_ < worker.lost_at + options_.rejoin_seconds)
      continue;
    start_worker(static_cast<int64_t>(i));
    --lost_;
  }
  if (lost_ == before) return;
  make_coordinator();
  must_regroup_ = true;
  regroup();
}

double Simulation::next_notice() const {
  return notices_.empty() ? std::numeric_limits<double>::infinity()
                          : notices_.front().at + cluster::Coordinator::kGoneSeconds;
}

bool Simulation::try_lose(double now) {
  if (!may_lose_) return false;
  if (next_notice() <= std::min(now, losses_.next_at())) {
    now_ = std::max(now_, next_notice());
    const int64_t worker = notices_.front().worker;
    notices_.pop_front();
    if (workers_[static_cast<size_t>(worker)].is_lost())  // and has not come back meanwhile
      deliver(coordinator_->lose(static_cast<int>(worker)));
    exchange_messages();
    return true;
  }
  const std::optional<Loss> loss = losses_.try_next(now);
  if (!loss) return false;
  if (!workers_[static_cast<size_t>(loss->worker)].is_lost()) lose(loss->worker, loss->at);
  return true;
}

void Simulation::lose(int64_t index, double at) {
  now_ = std::max(now_, at);
  ++report_.lost_workers;
  if (index == 0) {
    if (!ended_at_) ended_at_ = now_;
    return;
  }
  Worker& worker = workers_[static_cast<size_t>(index)];
  if (worker.is_idle) account_idle(index);
  worker.lost_at = now_;
  ++lost_;
  must_regroup_ = true;
  lose_engine(worker);
  std::erase_if(worker.finished, [&](const Finished& it) {
    if (!worker.unfinished.contains(it.source)) return false;
    ++groups_[static_cast<size_t>(it.sequence.group)].unfinished;
    lose_response(it, it.sequence.length - it.sequence.received);
    return true;
  });
  worker.unfinished.clear();
  worker.whole_groups.clear();
  report_.trained_tokens -= std::exchange(worker.trained_tokens, 0);
  for (Group& group : groups_)
    if (group.gradients_at == index) group.gradients = 0, group.gradients_at = -1;
  notices_.push_back({now_, index});
}

// Its step of the engine ends, and what it has is lost.
void Simulation::lose_engine(Worker& worker) {
  if (worker.busy_until > now_) {
    worker.decoding -= worker.busy_until - now_;
    report_.wasted_tokens -= worker.engine->cut(worker.busy_until - now_);
  }
  for (const auto& sequences : {worker.engine->take_finished(), worker.engine->take_unfinished()})
    for (const SimulatedSequence& it : sequences)
      report_.wasted_tokens += it.generated - it.received;
}

void Simulation::lose_response(const Finished& finished, double wasted) {
  const SimulatedSequence& it = finished.sequence;
  --report_.responses;
  report_.tokens -= it.length - it.begun;
  report_.truncated -= it.length >= static_cast<double>(options_.max_response_length);
  report_.wasted_tokens += wasted;
}

std::vector<int64_t> Simulation::take_lost_groups() {
  std::set<int64_t> lost;
  for (const Worker& worker : workers_)
    if (worker.is_lost())
      for (const Finished& it : worker.finished) lost.insert(it.sequence.group);
  if (lost.empty()) return {};
  for (Worker& worker : workers_) {
    std::erase_if(worker.finished, [&](const Finished& it) {
      if (!lost.contains(it.sequence.group)) return false;
      lose_response(it, it.sequence.length - it.sequence.begun);
      return true;
    });
    std::erase_if(worker.whole_groups, [&](int64_t group) { return lost.contains(group); });
  }
  for (const int64_t index : lost) {
    Group& group = groups_[static_cast<size_t>(index)];
    group = {.step = group.step, .prompt = group.prompt, .unfinished = options_.n};
  }
  return {lost.begin(), lost.end()};
}

void Simulation::regroup() {
  if (std::exchange(must_regroup_, false))
    report_.regroup += advance("regroup", options_.regroup_seconds);
}

void Simulation::save_checkpoint() {
  if (options_.save_freq == 0 || (step_ + 1) % options_.save_freq != 0) return;
  report_.checkpoint = advance("checkpoint", disk_.save(now_));
}

// What follows the last checkpoint up to the loss is done twice. All workers begin again.
void Simulation::restart() {
  if (!ended_at_) return;
  const double twice = *ended_at_ - disk_.resumes_at(*ended_at_);
  ended_at_.reset();
  report_.restart = advance("restart", twice + options_.restart_seconds);
  disk_.resumed(report_.restart);
  for (size_t i = 0; i < workers_.size(); ++i)
    if (workers_[i].is_lost()) start_worker(static_cast<int64_t>(i));
  lost_ = 0;
  must_regroup_ = false;
  notices_.clear();
  make_coordinator();
}

}  // namespace tlt::simulate

// What follows the rollouts: logprob passes, update, training of the draft model, weights.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "simulate/simulation.h"
#include "train/packing.h"

namespace tlt::simulate {
namespace {

constexpr double kGapShare = 0.05;     // of a single worker's rollouts (IdleTrainOptions)
constexpr double kExchangedBytes = 8;  // of a token: itself and its logprob

}  // namespace

void Simulation::train() {
  report_.logprobs = advance_together("logprobs", [this] { return logprob_seconds(); });
  train_draft_model();
  report_.update = advance_together("update", [this] { return update_seconds(); });
  report_.sync = advance_together("sync", [this] { return costs_.weight_sync(); });
}

void Simulation::train_on_other_workers() {
  train_draft_model();
  report_.update = advance("update", std::max(0.0, training_left_ - report_.rollout));
  // The training of this step begins here; scores may have come in the meantime.
  training_left_ = reward_seconds() + exchange_seconds() + logprob_seconds() + update_seconds();
  if (step_ + 1 == options_.total_training_steps)
    report_.update += advance("update", training_left_);
  report_.sync = advance("sync", costs_.weight_broadcast());
}

double Simulation::advance(const char* lane, double seconds) {
  if (observer_ && seconds > 0)
    for (size_t i = 0; i < workers_.size(); ++i)
      if (!workers_[i].is_lost()) observer_(static_cast<int64_t>(i), lane, now_, now_ + seconds);
  now_ += seconds;
  return seconds;
}

double Simulation::advance_together(const char* lane, const std::function<double()>& seconds) {
  double spent = 0;
  while (true) {
    const double all = seconds(), began = now_;
    const int64_t before = lost_;
    while (lost_ == before && try_lose(began + all)) continue;
    if (lost_ == before) {
      now_ = began;
      return spent + advance(lane, all);
    }
    // Until the loss, which all collectives notice at once.
    const double lost_at = now_;
    now_ = began;
    spent += advance(lane, lost_at - began);
    regroup();
  }
}

std::vector<double> Simulation::trainers() const {
  if (way_.is_one_step_off || lost_ == 0) return trainer_slowness_;
  std::vector<double> living;
  for (const Worker& worker : workers_)
    if (!worker.is_lost()) living.push_back(worker.slowness);
  return living;
}

double Simulation::exchange_seconds() const {
  return costs_.exchange(kExchangedBytes * report_.tokens,
                         way_.is_one_step_off ? std::ssize(trainer_slowness_) : living());
}

double Simulation::logprob_seconds() const {
  const auto groups = static_cast<double>(std::ssize(groups_));
  const double prompts = groups * static_cast<double>(options_.prompt_length),
               mean_length = report_.updated_tokens / (groups * static_cast<double>(options_.n));
  return options_.logprob_passes * train::kForwardShare *
         costs_.training(report_.updated_tokens + prompts, mean_length) /
         static_cast<double>(trainers().size());
}

// The worker with the most work ends last. What idle workers have computed of a group's packs, the
// first ones, is not computed again.
double Simulation::update_seconds() const {
  std::vector<train::Pack> packs;
  std::vector<double> costs;
  for (const Group& group : groups_) {
    double done = group.gradients;
    for (const double cost : pack_costs(group)) {
      const double left = std::max(0.0, cost - done);
      done = std::max(0.0, done - cost);
      if (left <= 0) continue;
      packs.push_back({std::ssize(costs)});
      costs.push_back(left);
    }
  }
  const std::vector<double> slowness = trainers();
  const int64_t workers = std::ssize(slowness);
  std::vector<double> loads(slowness.size(), 0);
  const std::vector<int> owners = train::assign_packs(packs, costs, static_cast<int>(workers));
  for (size_t i = 0; i < owners.size(); ++i)
    loads[static_cast<size_t>(owners[i])] += costs[i] * slowness[static_cast<size_t>(owners[i])];
  return *std::ranges::max_element(loads) + costs_.optimizer(workers);
}

void Simulation::train_draft_model() {
  draft_model_share_ = report_.engines.steps > 0
                           ? static_cast<double>(report_.engines.draft_model_steps) /
                                 static_cast<double>(report_.engines.steps)
                           : 0;
  idle_seconds_ += report_.idle;
  trained_seconds_ += report_.draft_training;
  double seconds = report_.draft_training;
  if (trains_ && rolling_out_ == 1) {
    seconds = report_.draft_gap = advance("draft", kGapShare * report_.rollout);
    report_.trained_tokens = seconds / costs_.draft_training(1);
  }
  const double before = chain_length(acceptance_after(draft_tokens_));
  draft_tokens_ += report_.trained_tokens;
  const double after = chain_length(acceptance_after(draft_tokens_));
  if (report_.trained_tokens > 0)
    trigger_.trained(before, after, seconds);
  else
    trigger_.rested(before);
  draft_tokens_ *= 1 - options_.drift;
}

}  // namespace tlt::simulate

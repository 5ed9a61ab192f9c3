// SPDX-License-Identifier: Apache-2.0
#include "rollout/speculation.h"

#include <algorithm>
#include <utility>

#include "base/counters.h"

namespace tlt::rollout {
namespace {

// Adds its lifetime to a sum.
struct Timed {
  Timed(double& sum, const Clock& clock) : sum(sum), watch(clock) {}
  ~Timed() { sum += watch.seconds(); }
  double& sum;
  const Stopwatch watch;
};

std::vector<std::unique_ptr<drafter::Drafter>> one(std::unique_ptr<drafter::Drafter> drafter) {
  std::vector<std::unique_ptr<drafter::Drafter>> drafters;
  drafters.push_back(std::move(drafter));
  return drafters;
}

bool mixes(const SpeculationPolicy::Adaptive& adaptive) {
  return std::ranges::find(adaptive.kinds, DrafterSet::kMixed) != adaptive.kinds.end();
}

}  // namespace

Speculation::Speculation(std::unique_ptr<drafter::Drafter> drafter, drafter::Strategy strategy,
                         int64_t vocabulary)
    : drafters_(one(std::move(drafter)), /*mixes=*/false, vocabulary),
      policy_(drafters_, {std::string(drafters_.members().front().kind()), strategy}),
      clock_(policy_.clock()) {}

Speculation::Speculation(std::vector<std::unique_ptr<drafter::Drafter>> drafters,
                         drafter::Strategy strategy, int64_t vocabulary)
    : drafters_(std::move(drafters), /*mixes=*/true, vocabulary),
      policy_(drafters_, speculation::Arm{DrafterSet::kMixed, strategy}),
      clock_(policy_.clock()) {}

Speculation::Speculation(std::vector<std::unique_ptr<drafter::Drafter>> drafters, Adaptive adaptive,
                         int64_t vocabulary)
    : drafters_(std::move(drafters), mixes(adaptive), vocabulary),
      policy_(drafters_, std::move(adaptive)),
      clock_(policy_.clock()) {}

void Speculation::propose(std::span<const std::unique_ptr<Sequence>> running) {
  policy_.measure_if_due();
  watch_.restart();
  const Timed timed(seconds_, clock_);
  step_.begin(running);
  draft_seconds_ = 0;
  drafting_ = step_.load().batch > 0 ? policy_.choose(step_.load()) : nullptr;
  if (drafting_) draft(running);
}

void Speculation::draft(std::span<const std::unique_ptr<Sequence>> running) {
  const Stopwatch watch(clock_);
  step_.request(running, policy_.arm().strategy, /*shares_uniforms=*/!target_only_);
  if (policy_.is_exploration()) step_.keep_shortest(speculation::kExplorationSequences);
  drafters_.deliver_states([&](drafter::SequenceId id) { return step_.includes(id); });
  if (!drafters_.try_propose(*drafting_, step_.requests())) {
    drafting_ = nullptr;
    return;
  }
  policy_.prune(*drafting_, step_.requests(), step_.load());
  draft_seconds_ = watch.seconds();
  drafting_->stats.draft_seconds += draft_seconds_;
  ++drafting_->stats.steps;
}

void Speculation::finish(const StepPlan& plan, const TargetStates& states) {
  const Timed timed(seconds_, clock_);
  drafters_.read(plan, states);
  step_.collect(plan, /*drafted=*/drafting_ != nullptr);
  speculation::StepOutcome outcome = step_.outcome();
  if (outcome.batch == 0) return;
  ++decode_steps_;
  if (drafting_) drafters_.count(*drafting_, outcome.trees);
  outcome.draft_seconds = draft_seconds_;
  outcome.seconds = watch_.seconds();
  if (const auto plain = policy_.plain_seconds(outcome))
    step_seconds_ += outcome.seconds, plain_seconds_ += *plain;
  policy_.learn(drafting_, outcome);
}

void Speculation::ended(const Response& response) {
  drafters_.end({response.prompt_id, response.sample}, response.tokens);
}

void Speculation::new_weights() {
  drafters_.new_weights();
  policy_.new_weights();
}

int64_t Speculation::spare_capacity(int64_t sequences) {
  speculation::Load load = step_.load();
  load.batch = sequences;
  return policy_.spare_capacity(load);
}

SpeculationStats Speculation::stats() const {
  SpeculationStats sum;
  for (const DrafterSet::Member& member : drafters_.members()) {
    add_counters<DraftStats>(sum, member.stats);
    sum.forward_seconds += member.drafter->forward_seconds();
  }
  sum.decode_steps = decode_steps_;
  sum.seconds = seconds_;
  sum.step_seconds = step_seconds_;
  sum.plain_seconds = plain_seconds_;
  return sum;
}

std::vector<std::string> Speculation::kinds() const {
  std::vector<std::string> kinds;
  for (const DrafterSet::Member& member : drafters_.members()) kinds.emplace_back(member.kind());
  return kinds;
}

}  // namespace tlt::rollout

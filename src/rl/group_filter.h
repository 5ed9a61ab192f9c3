// GroupFilter and StepGroups: dynamic sampling (DAPO, section 3.2; verl's algorithm.filter_groups).
// A group whose samples all have the same value of a metric has zero advantages: GroupFilter drops
// it, and more prompts are rolled out until the step has enough groups.
//
// StepGroups collects the groups of a step in the order of their prompts in the sampler, so they
// are the same for any number of workers. Surplus groups of the last generation batch are dropped,
// as in verl.
//
// With ReMax the last sample of a group is its greedy response: it counts as one of the group, and
// StepGroups keeps it apart from the rollouts to train on.
//
// Not here   the rollouts (rollout_phase.h); how many generation batches are allowed (rl_loop.cpp).
// Threading  engine thread only.
//
//   StepGroups groups(filter ? &*filter : nullptr, /*wanted=*/16, /*samples=*/8);
//   while (!groups.is_full()) { …roll out…; groups.add(std::move(prompts), std::move(rollouts)); }
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/metrics.h"
#include "data/dataset.h"
#include "reward/reward.h"
#include "run/algorithm_options.h"
#include "run/rollout.h"

namespace tlt::rl {

class GroupFilter {
 public:
  GroupFilter(const run::FilterGroupsOptions& options, const reward::RewardOptions& rewards);

  // The metric's value for a rollout.
  double value(const run::Rollout& rollout) const;
  // False: all samples have the same value. A group of one is kept, as in verl.
  bool keeps(std::span<const run::Rollout> group) const;

 private:
  double accuracy(const run::Rollout& rollout) const;

  const bool is_accuracy_;
  // The reward functions that judge the answer, and their weights; empty: use the score.
  std::vector<std::pair<std::string, double>> parts_;
};

// Counts of all rollouts of a step, those of dropped groups included.
struct Generated {
  int64_t batches = 0;
  int64_t groups = 0, equal_groups = 0;  // equal: all samples have the same score
  int64_t filtered = 0, surplus = 0;     // dropped groups
  int64_t responses = 0, unscored = 0;
  int64_t tokens = 0, forwards = 0;
  double score = 0;  // sum

  void count(std::span<const run::Rollout> group);
};

class StepGroups {
 public:
  // Collects `wanted` groups of `samples` samples each. `filter`: null keeps all.
  // `has_baseline`: the last of them is the greedy response.
  StepGroups(const GroupFilter* filter, int64_t wanted, int64_t samples, bool has_baseline = false);

  // Adds a generation batch: rollouts ordered by prompt and sample, whose `prompt` is an index into
  // `prompts`. REQUIRES: complete groups.
  void add(std::vector<data::Prompt> prompts, std::vector<run::Rollout> rollouts);

  bool is_full() const { return std::ssize(prompts_) == wanted_; }
  int64_t size() const { return std::ssize(prompts_); }

  // The groups to train on; a rollout's `prompt` is an index into prompts().
  const std::vector<data::Prompt>& prompts() const { return prompts_; }
  const std::vector<run::Rollout>& rollouts() const { return rollouts_; }
  // The greedy responses, one a group; empty without has_baseline.
  const std::vector<run::Rollout>& baselines() const { return baselines_; }
  const Generated& generated() const { return generated_; }

 private:
  const GroupFilter* const filter_;
  const int64_t wanted_, samples_;
  const bool has_baseline_;
  std::vector<data::Prompt> prompts_;
  std::vector<run::Rollout> rollouts_, baselines_;
  Generated generated_;
};

}  // namespace tlt::rl

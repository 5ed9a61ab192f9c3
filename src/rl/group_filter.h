// GroupFilter and StepGroups: dynamic sampling (DAPO, section 3.2; verl's algorithm.filter_groups).
// A group whose samples all have the same value of a metric teaches nothing: it is left out, and
// more prompts are rolled out until a step has as many groups as it learns from.
//
// StepGroups holds the groups of a step, in the order in which their prompts were drawn, so it is
// the same for any number of workers. What the last generation batch has too much is dropped, as
// verl does.
//
// Not here   the rollouts (rollout_phase.h); how often more are made, and when that is given up
//            (rl_loop.cpp).
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
#include "base/options.h"
#include "data/dataset.h"
#include "reward/reward.h"
#include "rl/rollout.h"

namespace tlt::rl {

struct FilterGroupsOptions {
  bool enable = false;
  std::string metric = "acc";
  int64_t max_num_gen_batches = 0;

  void visit(auto& v) {
    v(enable, "enable", Affects::kResults,
      "Dynamic sampling (DAPO): leave out groups whose samples all have the same metric, and roll "
      "out more prompts in their place.");
    v(metric, "metric", Affects::kResults,
      "acc: the reward's extra of this name, or the score without format, length and repetition; "
      "score, seq_reward or seq_final_reward: the score.");
    v(max_num_gen_batches, "max_num_gen_batches", Affects::kResults,
      "The run ends with an error when so many batches were not enough for a step; 0: no limit.");
  }
  void check() const;
};

class GroupFilter {
 public:
  GroupFilter(const FilterGroupsOptions& options, const reward::RewardOptions& rewards);

  // What the metric says of a rollout.
  double value(const Rollout& rollout) const;
  // False: all samples have the same value. A group of one is kept, as verl does.
  bool keeps(std::span<const Rollout> group) const;

 private:
  double accuracy(const Rollout& rollout) const;

  const bool is_accuracy_;
  // The parts of a sum of rewards that judge the answer, and their weights; empty: the score does.
  std::vector<std::pair<std::string, double>> parts_;
};

// What was rolled out for a step, whether it is learned from or not.
struct Generated {
  int64_t batches = 0;
  int64_t groups = 0, equal_groups = 0;  // equal: of one score
  int64_t filtered = 0, surplus = 0;     // groups that are not learned from
  int64_t responses = 0, unscored = 0;
  int64_t tokens = 0, forwards = 0;
  double score = 0;  // sum

  void count(std::span<const Rollout> group);
};

class StepGroups {
 public:
  // Wants so many groups of so many samples; a filter of null keeps all.
  StepGroups(const GroupFilter* filter, int64_t wanted, int64_t samples);

  // A generation batch: rollouts ordered by prompt and sample, whose `prompt` is an index into
  // `prompts`. REQUIRES: whole groups.
  void add(std::vector<data::Prompt> prompts, std::vector<Rollout> rollouts);

  bool is_full() const { return std::ssize(prompts_) == wanted_; }
  int64_t size() const { return std::ssize(prompts_); }

  // What is learned from; a rollout's `prompt` is an index into prompts().
  const std::vector<data::Prompt>& prompts() const { return prompts_; }
  const std::vector<Rollout>& rollouts() const { return rollouts_; }
  const Generated& generated() const { return generated_; }

 private:
  const GroupFilter* const filter_;
  const int64_t wanted_, samples_;
  std::vector<data::Prompt> prompts_;
  std::vector<Rollout> rollouts_;
  Generated generated_;
};

}  // namespace tlt::rl

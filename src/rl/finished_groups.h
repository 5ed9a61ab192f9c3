// FinishedGroups: the responses that a worker has finished in a step, and which groups of them are
// complete: all samples scored, so that an idle worker can compute their gradients early.
//
// Owns       the rollouts, with their scores once these have come.
// Not here   scoring (reward/reward_pool.h); who computes a group (rollout_phase.h).
// Threading  engine thread only.
//
//   finished.begin(samples, [&](uint32_t prompt) { return early.takes(prompt); });
//   rewards.submit(finished.add(rollout), …);
//   for (const reward::ScoredSample& sample : rewards.poll()) finished.attach(sample);
//   const std::vector<run::Rollout> group = finished.take_oldest();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "reward/reward_pool.h"
#include "run/rollout.h"

namespace tlt::rl {

class FinishedGroups {
 public:
  // Empty, of groups of `samples`. `takes`: whether the group of a prompt, by index, is one to
  // compute early.
  void begin(int64_t samples, std::function<bool(uint32_t prompt)> takes);

  // Returns the rollout's id, for attach().
  size_t add(run::Rollout rollout);
  void attach(const reward::ScoredSample& sample);
  // A lost worker had finished this group, or part of it, and may have handed it over: its gradients
  // are not computed early again.
  void begin_again(uint32_t prompt) { begun_again_.insert(prompt); }

  const std::vector<run::Rollout>& rollouts() const { return rollouts_; }
  bool are_scored() const { return scored_ == rollouts_.size(); }

  // Complete groups that were not taken.
  int64_t complete() const { return std::ssize(complete_); }
  // The rollouts of one, by sample; empty: there is none.
  std::vector<run::Rollout> take_oldest();
  std::vector<run::Rollout> take_newest();

 private:
  std::vector<run::Rollout> rollouts_of(uint32_t prompt) const;

  int64_t samples_ = 0;
  std::function<bool(uint32_t)> takes_;
  std::vector<run::Rollout> rollouts_;
  size_t scored_ = 0;                                  // of rollouts_
  std::map<uint32_t, std::vector<size_t>> by_prompt_;  // those with a score; no sample twice
  std::deque<uint32_t> complete_;
  std::set<uint32_t> begun_again_;
};

}  // namespace tlt::rl

// SPDX-License-Identifier: Apache-2.0
#include "rl/finished_groups.h"

#include <algorithm>
#include <utility>

namespace tlt::rl {

void FinishedGroups::begin(int64_t samples, std::function<bool(uint32_t)> takes) {
  *this = {};
  samples_ = samples;
  takes_ = std::move(takes);
}

size_t FinishedGroups::add(run::Rollout rollout) {
  rollouts_.push_back(std::move(rollout));
  return rollouts_.size() - 1;
}

void FinishedGroups::attach(const reward::ScoredSample& sample) {
  run::Rollout& rollout = rollouts_.at(sample.id);
  rollout.is_scored = true;
  rollout.score = sample.result.score;
  rollout.extras = sample.result.extras;
  rollout.answer = sample.result.answer;
  if (sample.status != reward::RewardStatus::kScored)
    rollout.fault = sample.error.empty() ? "its reward failed" : sample.error;
  ++scored_;
  std::vector<size_t>& group = by_prompt_[rollout.prompt];
  // A lost worker's group that is rolled out again may have responses that migrated here.
  if (std::ranges::any_of(
          group, [&](size_t i) { return rollouts_[i].response.sample == rollout.response.sample; }))
    return;
  group.push_back(sample.id);
  if (std::ssize(group) == samples_ && takes_(rollout.prompt) &&
      !begun_again_.contains(rollout.prompt))
    complete_.push_back(rollout.prompt);
}

std::vector<run::Rollout> FinishedGroups::take_oldest() {
  if (complete_.empty()) return {};
  const uint32_t prompt = complete_.front();
  complete_.pop_front();
  return rollouts_of(prompt);
}

std::vector<run::Rollout> FinishedGroups::take_newest() {
  if (complete_.empty()) return {};
  const uint32_t prompt = complete_.back();
  complete_.pop_back();
  return rollouts_of(prompt);
}

std::vector<run::Rollout> FinishedGroups::rollouts_of(uint32_t prompt) const {
  std::vector<run::Rollout> rollouts;
  for (const size_t i : by_prompt_.at(prompt)) rollouts.push_back(rollouts_[i]);
  std::ranges::sort(rollouts, {}, [](const run::Rollout& it) { return it.response.sample; });
  return rollouts;
}

}  // namespace tlt::rl

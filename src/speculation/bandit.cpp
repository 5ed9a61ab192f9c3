// SPDX-License-Identifier: Apache-2.0
#include "speculation/bandit.h"

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/check.h"
#include "base/random.h"

namespace tlt::speculation {
namespace {

constexpr uint32_t kPurpose = 0x6d616221;  // keeps these numbers apart from a run's others

double draw(uint64_t seed, uint64_t choice, uint32_t number) {
  return uniform(seed, {.step = static_cast<uint32_t>(choice >> 32),
                        .prompt = kPurpose,
                        .sample = number,
                        .position = static_cast<uint32_t>(choice)});
}

// As in TLT's BEG-MAB: accepted tokens a sequence, and the bonus token.
double acceptance_length(const StepOutcome& outcome) {
  int64_t accepted = 0;
  for (const drafter::VerifiedTree& tree : outcome.trees) accepted += tree.accepted_depth();
  return static_cast<double>(accepted) / static_cast<double>(outcome.batch) + 1;
}

}  // namespace

void RecentNumbers::add(double number, size_t window) {
  if (numbers_.size() < window) {
    if (numbers_.empty()) numbers_.reserve(window);
    numbers_.push_back(number);
  } else {
    numbers_[oldest_] = number;
    oldest_ = (oldest_ + 1) % window;
  }
}

void RecentNumbers::keep_newest(size_t count) {
  std::rotate(numbers_.begin(), numbers_.begin() + static_cast<std::ptrdiff_t>(oldest_),
              numbers_.end());
  oldest_ = 0;
  if (numbers_.size() > count)
    numbers_.erase(numbers_.begin(), numbers_.end() - static_cast<std::ptrdiff_t>(count));
}

double RecentNumbers::median(std::vector<double>& scratch) const {
  scratch.assign(numbers_.begin(), numbers_.end());
  const auto middle = scratch.begin() + static_cast<std::ptrdiff_t>(scratch.size() / 2);
  std::nth_element(scratch.begin(), middle, scratch.end());
  if (scratch.size() % 2 == 1) return *middle;
  return (*std::max_element(scratch.begin(), middle) + *middle) / 2;
}

std::vector<double> RecentNumbers::oldest_first() const {
  std::vector<double> numbers = numbers_;
  std::rotate(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(oldest_),
              numbers.end());
  return numbers;
}

BegBandit::BegBandit(const std::vector<Arm>& arms, Setup setup)
    : arms_(arms), setup_(std::move(setup)) {
  std::set<int64_t, std::greater<>> sizes;
  for (const Arm& arm : arms_)
    if (!arm.is_off()) sizes.insert(arm.strategy.verify);
  const auto off = std::ranges::find_if(arms_, &Arm::is_off);
  TLT_CHECK(off != arms_.end(), "no arm without speculation");
  off_ = static_cast<size_t>(off - arms_.begin());
  group_sizes_.assign(sizes.begin(), sizes.end());
  TLT_CHECK(!group_sizes_.empty(), "a bandit without strategies");
  TLT_CHECK(group_sizes_.size() <= setup_.options.mab_bs_threshold.size());
  rewards_.resize(group_sizes_.size() * arms_.size());
}

size_t BegBandit::bucket(int64_t batch) const {
  const auto starts = std::span(setup_.options.mab_bs_threshold).first(group_sizes_.size());
  const auto after = std::ranges::upper_bound(starts, batch);
  return static_cast<size_t>(std::max<std::ptrdiff_t>(after - starts.begin() - 1, 0));
}

void BegBandit::find_candidates(size_t bucket) {
  candidates_.clear();
  for (size_t arm = 0; arm < arms_.size(); ++arm)
    if (arms_[arm].strategy.verify == group_sizes_[bucket]) candidates_.push_back(arm);
}

size_t BegBandit::choose(const Load& load, uint64_t choice) {
  if (load.batch > setup_.bs_threshold) return off_;
  const size_t of_batch = bucket(load.batch);
  find_candidates(of_batch);
  if (candidates_.size() == 1) return candidates_.front();
  if (draw(setup_.seed, choice, 0) < setup_.options.mab_epsilon) {
    const double place = draw(setup_.seed, choice, 1) * static_cast<double>(candidates_.size());
    return candidates_[static_cast<size_t>(place)];
  }
  size_t best = candidates_.front();
  double best_reward = -std::numeric_limits<double>::infinity();
  for (const size_t arm : candidates_) {
    if (rewards(of_batch, arm).empty()) return arm;
    const double reward = rewards(of_batch, arm).median(scratch_);
    if (reward > best_reward) best = arm, best_reward = reward;
  }
  return best;
}

void BegBandit::record(size_t arm, const StepOutcome& outcome) {
  if (outcome.has_prompt_rows) return;
  const auto window = static_cast<size_t>(setup_.options.mab_window);
  const double reward =
      acceptance_length(outcome) * static_cast<double>(outcome.batch) / outcome.seconds;
  rewards(bucket(outcome.batch), arm).add(reward, window);
}

void BegBandit::new_weights() {
  const auto kept = static_cast<size_t>(std::max<int64_t>(setup_.options.mab_window / 4, 1));
  for (RecentNumbers& recent : rewards_) recent.keep_newest(kept);
}

nlohmann::json BegBandit::save() const {
  nlohmann::json rewards = nlohmann::json::array();
  for (const RecentNumbers& recent : rewards_) rewards.push_back(recent.oldest_first());
  return {{"rewards", rewards}};
}

void BegBandit::restore(const nlohmann::json& state) {
  const auto window = static_cast<size_t>(setup_.options.mab_window);
  for (size_t i = 0; i < rewards_.size(); ++i) {
    rewards_[i] = {};
    for (const nlohmann::json& number : state.at("rewards").at(i))
      rewards_[i].add(number.get<double>(), window);
  }
}

}  // namespace tlt::speculation

// SPDX-License-Identifier: Apache-2.0
#include "speculation/bandit.h"

#include <array>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

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
  std::ranges::rotate(numbers_, numbers_.begin() + static_cast<std::ptrdiff_t>(oldest_));
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

double RecentNumbers::trimmed_mean(std::vector<double>& scratch) const {
  scratch.assign(numbers_.begin(), numbers_.end());
  std::ranges::sort(scratch);
  const auto cut = static_cast<std::ptrdiff_t>(scratch.size() / 10);
  const double sum = std::accumulate(scratch.begin() + cut, scratch.end() - cut, 0.0);
  return sum / static_cast<double>(std::ssize(scratch) - 2 * cut);
}

std::vector<double> RecentNumbers::oldest_first() const {
  std::vector<double> numbers = numbers_;
  std::ranges::rotate(numbers, numbers.begin() + static_cast<std::ptrdiff_t>(oldest_));
  return numbers;
}

Bandit::Bandit(const std::vector<Arm>& arms, Setup setup)
    : arms_(arms),
      setup_(std::move(setup)),
      kind_(setup_.options.tune_algorithm == "BEG"    ? Kind::kBeg
            : setup_.options.tune_algorithm == "EG"   ? Kind::kEg
            : setup_.options.tune_algorithm == "UCB1" ? Kind::kUcb1
                                                      : Kind::kPredefined) {
  std::set<int64_t, std::greater<>> sizes;
  for (const Arm& arm : arms_)
    if (!arm.is_off()) sizes.insert(arm.strategy.verify);
  group_sizes_.assign(sizes.begin(), sizes.end());
  TLT_CHECK(!group_sizes_.empty(), "a bandit without strategies");
  TLT_CHECK(!by_buckets() || group_sizes_.size() == setup_.options.mab_bs_threshold.size());
  const size_t contexts = by_buckets() ? group_sizes_.size() : kReleaseBatches;
  rewards_.resize(contexts * arms_.size());
  lengths_.resize(arms_.size());
}

size_t Bandit::release_batch(int64_t batch) {
  batch = std::clamp<int64_t>(batch, 1, 256);
  if (batch < 32) return static_cast<size_t>(batch - 1);
  if (batch < 128) return static_cast<size_t>(31 + (batch - 32) / 8);
  return static_cast<size_t>(43 + (batch - 128) / 32);
}

size_t Bandit::context(int64_t batch) const {
  if (!by_buckets()) return release_batch(batch);
  const std::vector<int64_t>& starts = setup_.options.mab_bs_threshold;
  const auto after = std::ranges::upper_bound(starts, batch);
  return static_cast<size_t>(std::max<std::ptrdiff_t>(after - starts.begin() - 1, 0));
}

void Bandit::find_candidates(int64_t batch) {
  candidates_.clear();
  const auto allowed = [&](const drafter::Strategy& strategy) {
    if (by_buckets()) return strategy.verify == group_sizes_[context(batch)];
    return strategy.verify * batch <= setup_.max_rows || strategy.verify == group_sizes_.back();
  };
  for (size_t arm = 0; arm < arms_.size(); ++arm)
    if (arms_[arm].is_off() ? setup_.off_competes && kind_ != Kind::kPredefined
                            : allowed(arms_[arm].strategy))
      candidates_.push_back(arm);
}

size_t Bandit::choose(const Load& load, uint64_t choice) {
  find_candidates(load.batch);
  if (candidates_.size() == 1 || kind_ == Kind::kPredefined) return candidates_.front();
  const bool explores = kind_ != Kind::kUcb1;
  if (explores && draw(setup_.seed, choice, 0) < setup_.options.mab_epsilon) {
    const double place = draw(setup_.seed, choice, 1) * static_cast<double>(candidates_.size());
    return candidates_[static_cast<size_t>(place)];
  }
  return best_candidate(context(load.batch));
}

size_t Bandit::best_candidate(size_t context) {
  double plays = 0, best_mean = 0;
  for (const size_t arm : candidates_) {
    if (rewards(context, arm).empty()) return arm;
    plays += static_cast<double>(rewards(context, arm).size());
    if (kind_ == Kind::kUcb1)
      best_mean = std::max(best_mean, rewards(context, arm).trimmed_mean(scratch_));
  }
  size_t best = candidates_.front();
  double best_score = -std::numeric_limits<double>::infinity();
  for (const size_t arm : candidates_) {
    const double arm_score = score(context, arm, best_mean, plays);
    if (arm_score > best_score) best = arm, best_score = arm_score;
  }
  return best;
}

double Bandit::score(size_t context, size_t arm, double best_mean, double plays) {
  const RecentNumbers& recent = rewards(context, arm);
  if (kind_ != Kind::kUcb1) return recent.median(scratch_);
  return recent.trimmed_mean(scratch_) / best_mean +
         std::sqrt(2 * std::log(plays) / static_cast<double>(recent.size()));
}

void Bandit::record(size_t arm, const StepOutcome& outcome) {
  if (kind_ == Kind::kPredefined || outcome.has_prompt_rows) return;
  const auto window = static_cast<size_t>(setup_.options.mab_window);
  double length = acceptance_length(outcome);
  if (setup_.options.mab_reward == "stable") {
    lengths_[arm].add(length, window);
    length = lengths_[arm].median(scratch_);
  }
  const double reward = length * static_cast<double>(outcome.batch) / outcome.seconds;
  rewards(context(outcome.batch), arm).add(reward, window);
}

void Bandit::new_weights() {
  const auto kept = static_cast<size_t>(std::max<int64_t>(setup_.options.mab_window / 4, 1));
  for (RecentNumbers& recent : rewards_) recent.keep_newest(kept);
  for (RecentNumbers& recent : lengths_) recent.keep_newest(kept);
}

nlohmann::json Bandit::save() const {
  nlohmann::json rewards = nlohmann::json::array(), lengths = nlohmann::json::array();
  for (const RecentNumbers& recent : rewards_) rewards.push_back(recent.oldest_first());
  for (const RecentNumbers& recent : lengths_) lengths.push_back(recent.oldest_first());
  return {{"rewards", rewards}, {"lengths", lengths}};
}

void Bandit::restore(const nlohmann::json& state) {
  const auto window = static_cast<size_t>(setup_.options.mab_window);
  const auto read = [&](const nlohmann::json& lists, std::vector<RecentNumbers>& into) {
    for (size_t i = 0; i < into.size(); ++i) {
      into[i] = {};
      for (const nlohmann::json& number : lists.at(i)) into[i].add(number.get<double>(), window);
    }
  };
  read(state.at("rewards"), rewards_);
  read(state.at("lengths"), lengths_);
}

}  // namespace tlt::speculation

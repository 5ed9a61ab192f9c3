// SPDX-License-Identifier: Apache-2.0
#include "rl/group_filter.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"

namespace tlt::rl {
namespace {

// Reward functions that shape the response instead of judging its answer.
constexpr std::array<std::string_view, 3> kShaping = {"format", "length", "repetition"};

bool is_shaping(std::string_view function) {
  return std::ranges::find(kShaping, function) != kShaping.end();
}

// Exact comparison: the computed standard deviation of 0.1, 0.1, 0.1 is not 0.
template <class Value>
bool all_equal(std::span<const run::Rollout> group, const Value& value) {
  const double first = value(group.front());
  return std::ranges::all_of(group, [&](const run::Rollout& r) { return value(r) == first; });
}

}  // namespace

GroupFilter::GroupFilter(const run::FilterGroupsOptions& options,
                         const reward::RewardOptions& rewards)
    : is_accuracy_(options.metric == "acc") {
  options.check();
  if (std::ranges::none_of(rewards.functions, is_shaping)) return;
  for (size_t i = 0; i < rewards.functions.size(); ++i)
    if (!is_shaping(rewards.functions[i]))
      parts_.emplace_back(rewards.functions[i], rewards.weights.empty() ? 1 : rewards.weights[i]);
}

double GroupFilter::value(const run::Rollout& rollout) const {
  return is_accuracy_ ? accuracy(rollout) : rollout.score;
}

double GroupFilter::accuracy(const run::Rollout& rollout) const {
  if (const auto given = rollout.extras.find("acc"); given != rollout.extras.end())
    return given->second;
  if (parts_.empty()) return rollout.score;
  double sum = 0;  // without functions that failed
  for (const auto& [name, weight] : parts_)
    if (const auto part = rollout.extras.find(name); part != rollout.extras.end())
      sum += weight * part->second;
  return sum;
}

bool GroupFilter::keeps(std::span<const run::Rollout> group) const {
  return group.size() == 1 || !all_equal(group, [&](const run::Rollout& r) { return value(r); });
}

void Generated::count(std::span<const run::Rollout> group) {
  ++groups;
  equal_groups += all_equal(group, [](const run::Rollout& r) { return r.score; }) ? 1 : 0;
  for (const run::Rollout& rollout : group) {
    ++responses;
    unscored += rollout.fault.empty() ? 0 : 1;
    tokens += rollout.response.sampled_tokens();
    forwards += rollout.response.target_forwards;
    score += rollout.score;
  }
}

StepGroups::StepGroups(const GroupFilter* filter, int64_t wanted, int64_t samples,
                       bool has_baseline)
    : filter_(filter), wanted_(wanted), samples_(samples), has_baseline_(has_baseline) {
  TLT_CHECK(wanted > 0 && samples > (has_baseline ? 1 : 0), wanted, " groups of ", samples);
}

void StepGroups::add(std::vector<data::Prompt> prompts, std::vector<run::Rollout> rollouts) {
  const auto samples = static_cast<size_t>(samples_);
  TLT_CHECK(rollouts.size() == prompts.size() * samples, rollouts.size(), " rollouts of ",
            prompts.size(), " prompts");
  ++generated_.batches;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::span<run::Rollout> group = std::span(rollouts).subspan(i * samples, samples);
    generated_.count(group);
    if (filter_ && !filter_->keeps(group)) {
      ++generated_.filtered;
    } else if (is_full()) {
      ++generated_.surplus;
    } else {
      for (run::Rollout& rollout : group) {
        TLT_CHECK(rollout.prompt == i, "a rollout of prompt ", rollout.prompt, " in group ", i);
        rollout.prompt = static_cast<uint32_t>(prompts_.size());
        (has_baseline_ && &rollout == &group.back() ? baselines_ : rollouts_)
            .push_back(std::move(rollout));
      }
      prompts_.push_back(std::move(prompts[i]));
    }
  }
}

}  // namespace tlt::rl

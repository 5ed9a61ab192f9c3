// SPDX-License-Identifier: Apache-2.0
#include "reward/combine.h"

#include <algorithm>

#include "base/check.h"

namespace tlt::reward {

namespace {

RewardResult score_part(const Reward& part, const RewardInput& input) {
  try {
    return part.score(input);
  } catch (const RewardError&) {
    throw;  // a nested part, already named
  } catch (const std::exception& error) {
    throw RewardError(part.name(), error.what());
  }
}

// verl's names (default_compute_score): MATH, MATH-500, DAPO-Math, AIME, NuminaMath.
bool is_math(std::string_view data_source) {
  constexpr std::string_view kSources[] = {"lighteval/MATH",
                                           "DigitalLearningGmbH/MATH-lighteval",
                                           "HuggingFaceH4/MATH-500",
                                           "math",
                                           "math_dapo",
                                           "math_dapo_reasoning"};
  return std::ranges::count(kSources, data_source) > 0 || data_source.starts_with("aime") ||
         data_source.starts_with("numina_");
}

bool is_code(std::string_view data_source) {
  constexpr std::string_view kSources[] = {"codecontests", "apps", "codeforces", "taco"};
  return std::ranges::count(kSources, data_source) > 0;
}

}  // namespace

RewardResult WeightedReward::score(const RewardInput& input) const {
  RewardResult sum;
  for (const auto& [reward, weight] : parts_) {
    RewardResult part = score_part(*reward, input);
    sum.score += weight * part.score;
    sum.extras[reward->name()] = part.score;
    sum.extras.merge(part.extras);
    if (sum.answer.empty()) sum.answer = std::move(part.answer);
  }
  return sum;
}

void WeightedReward::check_row(const RewardInput& row) const {
  for (const auto& part : parts_) part.reward->check_row(row);
}

RewardNeeds WeightedReward::needs() const {
  RewardNeeds needs;
  for (const auto& part : parts_) needs = needs | part.reward->needs();
  return needs;
}

double WeightedReward::wall_factor(std::string_view data_source) const {
  double most = 1;
  for (const auto& part : parts_) most = std::max(most, part.reward->wall_factor(data_source));
  return most;
}

void WeightedReward::start() const {
  for (const auto& part : parts_) part.reward->start();
}

std::string WeightedReward::name() const {
  std::string names;
  for (const auto& part : parts_) names += (names.empty() ? "" : "+") + part.reward->name();
  return names;
}

const Reward& SourceReward::reward_for(std::string_view data_source) const {
  if (data_source == "openai/gsm8k") return gsm8k_;
  if (data_source == "tlt/countdown_trace") return countdown_trace_;
  if (data_source.find("countdown") != data_source.npos) return countdown_;
  if (is_math(data_source)) return math_;
  if (is_code(data_source)) return code_;
  throw InputError("no reward is known for the data source `" + std::string(data_source) +
                   "`; name one in reward.functions, or use openai/gsm8k, lighteval/MATH, "
                   "taco, countdown or tlt/countdown_trace");
}

RewardResult SourceReward::score(const RewardInput& input) const {
  return score_part(reward_for(input.data_source), input);
}

double SourceReward::wall_factor(std::string_view data_source) const {
  return is_code(data_source) ? code_.wall_factor(data_source) : 1;
}

void SourceReward::check_row(const RewardInput& row) const {
  reward_for(row.data_source).check_row(row);
}

}  // namespace tlt::reward

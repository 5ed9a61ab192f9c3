// SPDX-License-Identifier: Apache-2.0
#include "rollout/speculation_policy.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"

namespace tlt::rollout {
namespace {

// Weights of the latest step in the moving averages of speed and of the cost factor.
constexpr double kRateShare = 0.1, kFactorShare = 0.05;
constexpr double kLeastFactor = 0.5, kMostFactor = 3;  // limit the influence of interrupted steps

}  // namespace

SpeculationPolicy::SpeculationPolicy(DrafterSet& drafters, speculation::Arm arm)
    : drafters_(drafters), arm_(std::move(arm)) {}

SpeculationPolicy::SpeculationPolicy(DrafterSet& drafters, Adaptive adaptive)
    : drafters_(drafters),
      adaptive_(std::move(adaptive)),
      costs_(adaptive_->costs),
      budgets_(drafters.members().size()) {
  TLT_CHECK(costs_ || adaptive_->measure_costs);
  if (costs_) make_tuner();
}

// Makes a tuner for the drafters that have not failed; null when there are none.
void SpeculationPolicy::make_tuner() {
  failures_ = drafters_.failures();
  std::vector<std::string> kinds = drafters_.competing(adaptive_->kinds);
  tuner_.reset();
  if (!kinds.empty())
    tuner_ = std::make_unique<speculation::Tuner>(
        adaptive_->options, speculation::Tuner::Setup{.kinds = std::move(kinds),
                                                      .costs = *costs_,
                                                      .max_rows = adaptive_->max_rows,
                                                      .seed = adaptive_->seed});
}

void SpeculationPolicy::measure_if_due() {
  if (!adaptive_ || costs_ || unmeasured_seconds_ < kMeasureAfterSeconds) return;
  costs_ = adaptive_->measure_costs();
  make_tuner();
}

DrafterSet::Member* SpeculationPolicy::choose(const speculation::Load& load) {
  if (adaptive_) {
    if (costs_ && failures_ != drafters_.failures()) make_tuner();
    arm_ = tuner_ ? tuner_->choose(load) : speculation::Arm{};
  }
  return arm_.is_off() ? nullptr : drafters_.find(arm_.kind);
}

void SpeculationPolicy::prune(const DrafterSet::Member& drafter,
                              std::span<const drafter::DraftRequest> requests,
                              const speculation::Load& load) {
  if (!adaptive_ || speed_.tokens_per_second <= 0 || requests.empty()) return;
  trees_.clear();
  for (const drafter::DraftRequest& request : requests) trees_.push_back(request.tree);
  keep_.resize(trees_.size());
  budgets_[index_of(drafter)].split(
      {.trees = trees_,
       .tokens_per_second = speed_.tokens_per_second * speed_.cost_factor,
       .context = load.context,
       .max_rows = std::max(adaptive_->max_rows, std::ssize(trees_))},
      *costs_, keep_);
  for (size_t i = 0; i < keep_.size(); ++i)
    if (keep_[i] < requests[i].tree->size()) requests[i].tree->keep_best(keep_[i]);
}

void SpeculationPolicy::learn(const DrafterSet::Member* drafting, speculation::StepOutcome step,
                              const Stopwatch& watch) {
  // Learning from a step takes time too; that of this step is not known yet.
  double& learning = speed_.learning_seconds[drafting ? 1 : 0];
  const double before = watch.seconds();
  step.seconds = before + learning;
  if (drafting && drafters_.is_mixed(*drafting)) drafters_.mixed()->record(step.trees);
  if (adaptive_ && !costs_) unmeasured_seconds_ += before;
  if (!tuner_ || before <= 0) return;
  if (!step.has_prompt_rows) update_speed(step);
  if (drafting) budgets_[index_of(*drafting)].record(step.trees);
  tuner_->record(drafting ? arm_ : speculation::Arm{}, step);
  learning += kRateShare * (watch.seconds() - before - learning);
}

void SpeculationPolicy::update_speed(const speculation::StepOutcome& step) {
  const double rate = static_cast<double>(step.tokens) / step.seconds;
  double& average = speed_.tokens_per_second;
  average = average > 0 ? average + kRateShare * (rate - average) : rate;
  const double table = costs_->target_seconds(static_cast<double>(step.rows()),
                                              static_cast<double>(step.batch), step.context);
  const double factor =
      std::clamp((step.seconds - step.draft_seconds) / table, kLeastFactor, kMostFactor);
  speed_.cost_factor += kFactorShare * (factor - speed_.cost_factor);
}

void SpeculationPolicy::begin_rollout() {
  if (tuner_) tuner_->begin_rollout();
}

void SpeculationPolicy::new_weights() {
  if (tuner_) tuner_->new_weights();
}

int64_t SpeculationPolicy::spare_capacity(const speculation::Load& load) {
  return tuner_ ? tuner_->spare_capacity(load) : 0;
}

std::string SpeculationPolicy::save() const {
  if (!tuner_) return "";
  nlohmann::json budgets;
  for (size_t i = 0; i < budgets_.size(); ++i)
    budgets[std::string(drafters_.members()[i].kind())] = budgets_[i].save();
  nlohmann::json json = {{"tuner", tuner_->save()}, {"row_budgets", budgets}};
  if (drafters_.mixed()) json["mixed"] = drafters_.mixed()->save();
  return json.dump() + "\n";
}

void SpeculationPolicy::restore(const std::string& text, const std::string& place) {
  if (!tuner_) return;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (!tuner_->try_restore(json.at("tuner").get<std::string>(), place)) return;
    for (size_t i = 0; i < budgets_.size(); ++i)
      budgets_[i].restore(json.at("row_budgets").at(std::string(drafters_.members()[i].kind())));
    if (drafters_.mixed()) drafters_.mixed()->restore(json.at("mixed"));
  } catch (const nlohmann::json::exception& error) {
    throw InputError(check_internal::concat(place, ": not a saved state of speculation (",
                                            error.what(), "); delete it to start without one"));
  }
}

}  // namespace tlt::rollout

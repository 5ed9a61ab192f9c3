// SPDX-License-Identifier: Apache-2.0
#include "rollout/speculation_policy.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/json_fault.h"

namespace tlt::rollout {

SpeculationPolicy::SpeculationPolicy(DrafterSet& drafters, speculation::Arm arm)
    : drafters_(drafters), arm_(std::move(arm)) {}

SpeculationPolicy::SpeculationPolicy(DrafterSet& drafters, Adaptive adaptive)
    : drafters_(drafters), adaptive_(std::move(adaptive)), costs_(adaptive_->costs) {
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
  const double tokens_per_second = tuner_ ? tuner_->tokens_per_second() : 0;
  if (tokens_per_second <= 0 || requests.empty()) return;
  trees_.clear();
  for (const drafter::DraftRequest& request : requests) trees_.push_back(request.tree);
  keep_.resize(trees_.size());
  speculation::split_rows({.trees = trees_,
                           .sequences = load.batch,
                           .calibration = drafter.calibration,
                           .costs = *costs_,
                           .tokens_per_second = tokens_per_second,
                           .context = load.context,
                           .max_rows = std::max(adaptive_->max_rows, load.batch)},
                          keep_, nodes_);
  for (size_t i = 0; i < keep_.size(); ++i)
    if (keep_[i] < requests[i].tree->size()) requests[i].tree->keep_best(keep_[i]);
}

void SpeculationPolicy::learn(DrafterSet::Member* drafting, const speculation::StepOutcome& step) {
  if (drafting && drafters_.is_mixed(*drafting))
    drafters_.mixed()->record(step.trees);
  else if (drafting && tuner_)
    drafting->calibration.record(step.trees);
  if (adaptive_ && !costs_) unmeasured_seconds_ += step.seconds;
  if (tuner_ && step.seconds > 0) tuner_->record(drafting ? arm_ : speculation::Arm{}, step);
}

std::optional<double> SpeculationPolicy::plain_seconds(const speculation::StepOutcome& step) const {
  if (!adaptive_) return std::nullopt;
  if (step.trees.empty() || !costs_) return step.seconds;
  const auto batch = static_cast<double>(step.batch);
  const double plain = costs_->target_seconds(batch, batch, step.context),
               verify =
                   costs_->target_seconds(static_cast<double>(step.rows()), batch, step.context);
  return (step.seconds - step.draft_seconds) * plain / verify * static_cast<double>(step.tokens) /
         batch;
}

std::optional<double> SpeculationPolicy::ridge() const {
  return costs_ ? std::optional(costs_->ridge()) : std::nullopt;
}

void SpeculationPolicy::new_weights() {
  if (tuner_) tuner_->new_weights();
}

int64_t SpeculationPolicy::spare_capacity(const speculation::Load& load) {
  return tuner_ ? tuner_->spare_capacity(load) : 0;
}

std::string SpeculationPolicy::save() const {
  if (!tuner_) return "";
  nlohmann::json calibrations;
  for (const DrafterSet::Member& member : drafters_.members())
    calibrations[std::string(member.kind())] = member.calibration.save();
  nlohmann::json json = {{"tuner", tuner_->save()}, {"calibrations", calibrations}};
  if (drafters_.mixed()) json["mixed"] = drafters_.mixed()->save();
  return json.dump() + "\n";
}

void SpeculationPolicy::restore(const std::string& text, const std::string& place) {
  if (!tuner_ || text.empty()) return;  // empty: no drafter worked when it was saved
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (!tuner_->try_restore(json.at("tuner").get<std::string>(), place)) return;
    for (DrafterSet::Member& member : drafters_.members())
      member.calibration.restore(json.at("calibrations").at(std::string(member.kind())));
    if (drafters_.mixed()) drafters_.mixed()->restore(json.at("mixed"));
  } catch (const nlohmann::json::exception& error) {
    throw InputError(
        check_internal::concat(place, ": not a saved state of speculation (", json_fault(error),
                               "); delete this checkpoint to resume from the one before"));
  }
}

}  // namespace tlt::rollout

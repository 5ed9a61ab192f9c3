// SPDX-License-Identifier: Apache-2.0
#include "spec/adaptive_chooser.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::spec {
namespace {

constexpr double kClearAdvantage = 0.03;  // hysteresis: log of the ratio at once …
constexpr double kSummedAdvantage = 0.2;  // … or summed over steps
constexpr double kOptimism = 2;           // standard deviations
constexpr double kExploredShare = 0.015;
constexpr int64_t kFreeSteps = 32;      // of exploration, beside that share, at the start …
constexpr int64_t kFreeStepsAgain = 8;  // … and after new weights
constexpr double kRecentSteps = 1000;
constexpr int64_t kDoubtSteps = 512;  // an idle kind is tried again …
constexpr double kDoubtTrees = 4;     // … and this much left of what was known
constexpr double kWorthATry = 0.1;    // log of the ratio, if all its guesses were right
constexpr int64_t kMaxFailedTries = 3;
constexpr double kNewWeightsKept = 0.1;
constexpr double kNewWeightsTrees = 8;
constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace

AdaptiveChooser::AdaptiveChooser(const std::vector<Arm>& arms, Setup setup)
    : arms_(arms),
      setup_(std::move(setup)),
      places_(arms.size()),
      costs_(arms, setup_.costs),
      outlooks_(arms.size()) {
  std::vector<std::string> names;
  std::vector<std::vector<Strategy>> strategies;
  bool has_off = false;
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    if (arms_[arm].is_off()) {
      off_ = arm;
      has_off = true;
      continue;
    }
    const auto known = std::ranges::find(names, arms_[arm].kind) - names.begin();
    places_[arm].kind = static_cast<size_t>(known);
    if (known == std::ssize(names)) {
      names.push_back(arms_[arm].kind);
      strategies.emplace_back();
    }
    places_[arm].strategy = strategies[places_[arm].kind].size();
    strategies[places_[arm].kind].push_back(arms_[arm].strategy);
  }
  TLT_CHECK(has_off, "no arm without speculation");
  for (size_t kind = 0; kind < names.size(); ++kind)
    kinds_.push_back({names[kind], Acceptance(strategies[kind])});
  favourite_ = off_;
  free_steps_ = kFreeSteps;
}

double AdaptiveChooser::expected_tokens(size_t arm) const {
  if (arm == off_) return 1;
  return kinds_[places_[arm].kind].acceptance.expected(places_[arm].strategy);
}

double AdaptiveChooser::expected_seconds(size_t arm, int64_t batch) {
  return std::exp(costs_.predict(batch)[arm].log_seconds);
}

double AdaptiveChooser::explored_share() const {
  return recent_seconds_ > 0 ? explored_seconds_ / recent_seconds_ : 0;
}

bool AdaptiveChooser::may_choose(size_t arm, int64_t batch) const {
  return arm == off_ ? setup_.off_competes : arms_[arm].strategy.verify * batch <= setup_.max_rows;
}

bool AdaptiveChooser::is_due(const Kind& kind) const {
  return kind.idle_steps >= kDoubtSteps << kind.failed_tries;
}

void AdaptiveChooser::judge(int64_t batch) {
  const std::span<const StepCosts::Prediction> costs = costs_.predict(batch);
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    double tokens_deviation = 0;
    if (arm != off_) {
      const Kind& kind = kinds_[places_[arm].kind];
      tokens_deviation = kind.acceptance.deviation(places_[arm].strategy);
    }
    const double score =
        may_choose(arm, batch) ? std::log(expected_tokens(arm)) - costs[arm].log_seconds : kNever;
    outlooks_[arm] = {score, score + kOptimism * std::hypot(tokens_deviation, costs[arm].deviation),
                      std::exp(costs[arm].log_seconds)};
  }
}

size_t AdaptiveChooser::choose(int64_t batch, uint64_t) {
  explores_ = false;
  judge(batch);
  settle();
  if (outlooks_[favourite_].score == kNever) return off_;
  const size_t promising = find_promising();
  explores_ = promising != favourite_ && can_afford(promising);
  return explores_ ? promising : favourite_;
}

void AdaptiveChooser::settle() {
  const auto best = static_cast<size_t>(std::ranges::max_element(outlooks_, {}, &Outlook::score) -
                                        outlooks_.begin());
  if (best == favourite_ || outlooks_[best].score == kNever) {
    advantage_ = 0;
    return;
  }
  const double ahead = outlooks_[best].score - outlooks_[favourite_].score;
  advantage_ += std::min(ahead, kSummedAdvantage);
  if (ahead < kClearAdvantage && advantage_ < kSummedAdvantage) return;
  favourite_ = best;
  advantage_ = 0;
  if (best != off_) kinds_[places_[best].kind].failed_tries = 0;
}

// The score if every guess were right.
double AdaptiveChooser::best_case(size_t arm) const {
  const Strategy& strategy = arms_[arm].strategy;
  const auto tokens = static_cast<double>(1 + std::min(strategy.depth, strategy.verify - 1));
  return std::log(tokens / outlooks_[arm].seconds);
}

// Of an idle kind, the cheapest arm that could show it to be clearly better.
std::optional<size_t> AdaptiveChooser::find_due() const {
  std::optional<size_t> cheapest;
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    if (arm == off_ || outlooks_[arm].score == kNever || !is_due(kinds_[places_[arm].kind]))
      continue;
    if (best_case(arm) < outlooks_[favourite_].score + kWorthATry) continue;
    if (!cheapest || outlooks_[arm].seconds < outlooks_[*cheapest].seconds) cheapest = arm;
  }
  return cheapest;
}

size_t AdaptiveChooser::find_promising() const {
  if (const std::optional<size_t> due = find_due()) return *due;
  size_t best = favourite_;
  double best_hope = outlooks_[favourite_].score;
  for (size_t arm = 0; arm < arms_.size(); ++arm)
    if (arm != favourite_ && outlooks_[arm].hope > best_hope)
      best = arm, best_hope = outlooks_[arm].hope;
  return best;
}

bool AdaptiveChooser::can_afford(size_t arm) const {
  return free_steps_ > 0 ||
         explored_seconds_ + outlooks_[arm].seconds <= kExploredShare * recent_seconds_;
}

void AdaptiveChooser::record(size_t arm, const StepOutcome& outcome) {
  if (!outcome.has_prompt_rows) {
    costs_.record(arm, outcome.batch, outcome.seconds);
    const double kept = 1 - 1 / kRecentSteps;
    // As expected now: a step that was interrupted must not use up what is for exploration.
    const double seconds = expected_seconds(arm, outcome.batch);
    recent_seconds_ = recent_seconds_ * kept + seconds;
    explored_seconds_ = explored_seconds_ * kept + (explores_ && free_steps_ == 0 ? seconds : 0);
    if (explores_ && free_steps_ > 0) --free_steps_;
  }
  for (Kind& kind : kinds_) ++kind.idle_steps;
  if (arm != off_) learn_tokens(arm, outcome);
  explores_ = false;
}

void AdaptiveChooser::learn_tokens(size_t arm, const StepOutcome& outcome) {
  Kind& kind = kinds_[places_[arm].kind];
  if (is_due(kind)) {
    kind.acceptance.forget(1, kDoubtTrees);
    kind.failed_tries = std::min(kind.failed_tries + 1, kMaxFailedTries);
  }
  kind.acceptance.record(places_[arm].strategy, outcome.trees);
  kind.idle_steps = 0;
}

void AdaptiveChooser::new_weights() {
  for (Kind& kind : kinds_) {
    kind.acceptance.forget(kNewWeightsKept, kNewWeightsTrees);
    kind.failed_tries = 0;
  }
  free_steps_ = std::max(free_steps_, kFreeStepsAgain);
  advantage_ = 0;
}

nlohmann::json AdaptiveChooser::save() const {
  nlohmann::json kinds = nlohmann::json::array();
  for (const Kind& kind : kinds_)
    kinds.push_back({{"acceptance", kind.acceptance.save()},
                     {"idle_steps", kind.idle_steps},
                     {"failed_tries", kind.failed_tries}});
  return {{"kinds", kinds},
          {"costs", costs_.save()},
          {"favourite", favourite_},
          {"advantage", advantage_},
          {"explores", explores_},
          {"recent_seconds", recent_seconds_},
          {"free_steps", free_steps_},
          {"explored_seconds", explored_seconds_}};
}

void AdaptiveChooser::restore(const nlohmann::json& state) {
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const nlohmann::json& kind = state.at("kinds").at(i);
    kinds_[i].acceptance.restore(kind.at("acceptance"));
    kind.at("idle_steps").get_to(kinds_[i].idle_steps);
    kind.at("failed_tries").get_to(kinds_[i].failed_tries);
  }
  costs_.restore(state.at("costs"));
  state.at("favourite").get_to(favourite_);
  state.at("advantage").get_to(advantage_);
  state.at("explores").get_to(explores_);
  state.at("recent_seconds").get_to(recent_seconds_);
  state.at("free_steps").get_to(free_steps_);
  state.at("explored_seconds").get_to(explored_seconds_);
}

}  // namespace tlt::spec

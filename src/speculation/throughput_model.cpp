// SPDX-License-Identifier: Apache-2.0
#include "speculation/throughput_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace tlt::speculation {
namespace {

// Steps after which an observation counts 1/e: a rollout lasts thousands, in which a draft model
// and the share of hard responses change.
constexpr double kMemorySteps = 300;
// Weight, in observations, of what a number is taken for before it is observed.
constexpr double kPrior = 2;
// a(1) of an unknown drafter: high enough that every drafter gets a trial.
constexpr double kPriorAcceptance = 0.5;
// More accepted tokens for twice the nodes (TLT, Figure 13a).
constexpr double kGainOfDoubling = 0.1;
// Trees of a trial: their mean is off by 25 %, as tokens of a tree deviate by 70 %.
constexpr int64_t kTrialTrees = 8;
// Smaller differences are noise, and a switch costs cold caches and hidden states to read.
constexpr double kHysteresis = 0.02;
constexpr double kExploredShare = 0.01;  // of the time
constexpr double kBudgetSteps = 12;      // that can be saved up, and are there at the start
// Steps between a drafter's trials, doubled after each: the first ones find the best arm, the last
// ones cost less than 0.1 % of the time.
constexpr int64_t kFirstWait = 32, kLongestWait = 4096;
constexpr int64_t kStaySteps = 8;    // a comparison takes up to 4 % of a small model's step
constexpr double kSpeedStep = 0.02;  // of the running median

// What the trees of a strategy accept relative to first choices, before any was verified.
double prior_gain(const drafter::Strategy& strategy) {
  if (strategy.width == 1) return 1;
  const double per_level =
      static_cast<double>(strategy.verify - 1) / static_cast<double>(strategy.depth);
  return 1 + kGainOfDoubling * std::max(0.0, std::log2(per_level));
}

size_t depth_of(const drafter::Strategy& strategy) {
  return std::min(static_cast<size_t>(std::min(strategy.depth, strategy.verify - 1)), kDepths);
}

}  // namespace

ThroughputModel::ThroughputModel(const std::vector<Arm>& arms, const CostTable& costs,
                                 int64_t max_rows)
    : arms_(arms),
      costs_(costs),
      max_rows_(max_rows),
      drafter_(arms.size()),
      states_(arms.size()),
      rates_(arms.size()) {
  std::vector<std::string> kinds;
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    draft_seconds_.push_back(costs_.draft_curve(arms_[arm]));
    const auto known = std::ranges::find(kinds, arms_[arm].kind);
    drafter_[arm] = static_cast<size_t>(known - kinds.begin());
    if (known == kinds.end()) kinds.push_back(arms_[arm].kind);
  }
  const auto off = std::ranges::find_if(arms_, &Arm::is_off);
  TLT_CHECK(off != arms_.end(), "no arm without speculation");
  off_ = now_.current = static_cast<size_t>(off - arms_.begin());
  now_.budget = kBudgetSteps;
  drafters_.resize(kinds.size());  // "off" has one that learns nothing
  accepted_.resize(kinds.size());
  for (DrafterState& drafter : drafters_) drafter.wait = kFirstWait;
  depths_.resize(kinds.size());
  told_.resize(arms_.size());
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    const drafter::Strategy& own = arms_[arm].strategy;
    if (arm != off_) depths_[drafter_[arm]] = std::max(depths_[drafter_[arm]], depth_of(own));
    for (size_t i = 0; i < arms_.size(); ++i) {
      const drafter::Strategy& other = arms_[i].strategy;
      const bool contains = other.depth <= own.depth && other.width <= own.width &&
                            other.verify <= own.verify && other.width > 1;
      if (i == arm || (contains && drafter_[i] == drafter_[arm])) told_[arm].push_back(i);
    }
  }
}

bool ThroughputModel::may_choose(size_t arm, int64_t batch) const {
  return arm == off_ || arms_[arm].strategy.verify * batch <= max_rows_;
}

// Accepted first choices by depth: the mean over these positions. A rate that is hardly known is
// taken from the neighbouring positions and the depth before.
ThroughputModel::ByDepth ThroughputModel::first_choices(const DrafterState& drafter,
                                                        const Positions& positions, size_t depths) {
  const auto sequences = static_cast<double>(std::reduce(positions.begin(), positions.end()));
  ByDepth sums = {};
  for (size_t position = 0; position < kPositions; ++position) {
    if (positions[position] == 0) continue;
    const size_t from = position > 0 ? position - 1 : 0, to = std::min(position + 2, kPositions);
    double rate = kPriorAcceptance, sum = 0;
    double reached = static_cast<double>(positions[position]) / sequences;
    for (size_t depth = 0; depth < depths; ++depth) {
      double weights = kPrior, weighted = kPrior * rate;
      for (size_t at = from; at < to; ++at) {
        const auto [mean, learned] = drafter.rates[at][depth];
        const double weight = at == position ? learned : std::min(learned, kPrior);
        weights += weight;
        weighted += weight * mean;
      }
      rate = weighted / weights;
      sums[depth + 1] += sum += reached *= rate;
    }
  }
  return sums;
}

// Verified trees that tell of the arm: of a chain, all of its drafter.
double ThroughputModel::evidence(size_t arm) const {
  if (arms_[arm].strategy.width > 1) return states_[arm].nodes.weight;
  double trees = 0;
  for (const Rates& rates : drafter_of(arm).rates) trees += rates[0].weight;
  return trees;
}

double ThroughputModel::target_seconds(const StepOutcome& outcome) const {
  return costs_.target_seconds(static_cast<double>(outcome.rows()),
                               static_cast<double>(outcome.batch), outcome.context);
}

double ThroughputModel::draft_seconds(size_t arm, int64_t sequences) const {
  const auto count = static_cast<double>(sequences);
  const Curve& table = draft_seconds_[arm];
  return std::max(0.0, (table.points.empty() ? 0 : table.at(count)) +
                           drafter_of(arm).extra_seconds.mean * count);
}

// At speed 1.
double ThroughputModel::seconds(size_t arm, const Load& load) const {
  CostTable::Passes passes = costs_.passes(static_cast<double>(load.batch), load.context);
  return seconds(arm, load.batch, passes);
}

double ThroughputModel::seconds(size_t arm, int64_t batch, CostTable::Passes& passes) const {
  drafter::Estimate nodes{static_cast<double>(arms_[arm].strategy.verify - 1), 1};
  nodes.add(states_[arm].nodes.mean, states_[arm].nodes.weight);
  return passes.seconds(static_cast<double>(batch) * (1 + nodes.mean)) + draft_seconds(arm, batch);
}

// Returns the largest of rates_ among the arms that may be chosen.
double ThroughputModel::predict(const Load& load) {
  for (size_t i = 0; i < drafters_.size(); ++i)
    if (depths_[i] > 0) accepted_[i] = first_choices(drafters_[i], load.positions, depths_[i]);
  CostTable::Passes passes = costs_.passes(static_cast<double>(load.batch), load.context);
  double best = 0;
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    rates_[arm] = tokens(arm) / seconds(arm, load.batch, passes);
    if (may_choose(arm, load.batch)) best = std::max(best, rates_[arm]);
  }
  return best;
}

// Of a sequence, for the load of the last predict().
double ThroughputModel::tokens(size_t arm) const {
  if (arm == off_) return 1;
  drafter::Estimate gain{prior_gain(arms_[arm].strategy), kPrior};
  gain.add(states_[arm].gain.mean, states_[arm].gain.weight);
  return 1 + gain.mean * accepted_[drafter_[arm]][depth_of(arms_[arm].strategy)];
}

size_t ThroughputModel::choose(const Load& load, uint64_t) {
  if (!may_choose(now_.trial, load.batch)) now_.trees = 0;
  const bool fits = load.batch == now_.load.batch || now_.current == off_;
  if (now_.trees <= 0 && now_.stay-- > 0 && fits) return now_.current;
  now_.load = load;
  if (now_.trees <= 0) {
    predict(load);
    settle(load.batch);
    start_trial(load.batch);
  }
  return now_.trees > 0 ? now_.trial : now_.current;
}

void ThroughputModel::settle(int64_t batch) {
  size_t best = off_;
  double best_rate = 0;
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    const bool is_known = arm == off_ || arm == now_.current || evidence(arm) >= kPrior;
    if (!may_choose(arm, batch) || !is_known) continue;
    const double rate = rates_[arm] * (arm == now_.current ? 1 + kHysteresis : 1);
    if (rate > best_rate) best = arm, best_rate = rate;
  }
  if (best != now_.current) {
    drafter_of(best).wait = kFirstWait;
    drafter_of(best).next_trial = now_.steps + kFirstWait;
  }
  now_.current = best;
  now_.stay = kStaySteps - 1;
  now_.rate = static_cast<double>(batch) * rates_[best];
}

// Of the drafters whose wait is over, the arm that may be the fastest.
void ThroughputModel::start_trial(int64_t batch) {
  double best = rates_[now_.current];
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    const bool is_due = now_.steps >= drafter_of(arm).next_trial && now_.budget > 0;
    if (arm == off_ || arm == now_.current || !is_due || !may_choose(arm, batch)) continue;
    const double hope = rates_[arm] * (1 + 1 / std::sqrt(1 + evidence(arm)));
    if (hope > best) best = hope, now_.trial = arm, now_.trees = kTrialTrees;
  }
}

void ThroughputModel::record(size_t arm, const StepOutcome& outcome) {
  ++now_.steps;
  forget(1 - 1 / kMemorySteps, std::numeric_limits<double>::infinity());
  for (const drafter::VerifiedTree& tree : outcome.trees) learn_tree(arm, tree);
  learn_seconds(arm, outcome);
  now_.budget = std::min(now_.budget + kExploredShare, kBudgetSteps);
  if (now_.trees > 0 && arm == now_.trial) pay_trial(outcome);
}

void ThroughputModel::learn_tree(size_t played, const drafter::VerifiedTree& tree) {
  parts_.take(tree);
  const drafter::Strategy& own = arms_[played].strategy;
  const size_t position = position_bucket(tree.position);
  Positions here = {};
  here[position] = 1;
  const ByDepth usual = first_choices(drafter_of(played), here, depth_of(own));
  for (const size_t arm : told_[played]) {
    const drafter::Strategy& other = arms_[arm].strategy;
    const auto [nodes, accepted] = parts_.part(other);
    const double expected = usual[depth_of(other)];
    states_[arm].gain.add(static_cast<double>(accepted) / expected, expected);
    states_[arm].nodes.add(static_cast<double>(nodes), 1);
  }
  // A drafter without a proposal has no first choice that could be accepted.
  Rates& rates = drafter_of(played).rates[position];
  const auto [nodes, accepted] = parts_.part({.depth = kDepths, .width = 1, .verify = kDepths + 1});
  for (size_t depth = 0; depth < accepted; ++depth) rates[depth].add(1, 1);
  if (accepted < std::max<size_t>(nodes, 1)) rates[accepted].add(0, 1);
}

void ThroughputModel::learn_seconds(size_t arm, const StepOutcome& outcome) {
  const bool is_slow =
      outcome.seconds - outcome.draft_seconds > now_.speed * target_seconds(outcome);
  if (!outcome.has_prompt_rows) now_.speed *= is_slow ? 1 + kSpeedStep : 1 / (1 + kSpeedStep);
  // The first step of a drafter also reads what it missed meanwhile: that is not the arm's cost.
  const bool reads = std::exchange(now_.drafter, drafter_[arm]) != drafter_[arm];
  const auto drafted = std::ssize(outcome.trees);
  if (drafted == 0 || reads) return;
  drafter::Estimate& extra = drafter_of(arm).extra_seconds;
  const double unexpected = outcome.draft_seconds / now_.speed - draft_seconds(arm, drafted);
  extra.add(extra.mean + unexpected / static_cast<double>(drafted), 1);
}

// Pays for a step of a trial: its seconds, less those in which the current arm would have given the
// same tokens. What an interrupted step takes from the budget is limited.
void ThroughputModel::pay_trial(const StepOutcome& outcome) {
  const double spent = target_seconds(outcome) + outcome.draft_seconds / now_.speed;
  const double lost = spent - static_cast<double>(outcome.tokens) / now_.rate;
  now_.budget -= std::clamp(lost / seconds(now_.current, now_.load), 0.0, 2 * kBudgetSteps);
  now_.trees -= std::max<int64_t>(std::ssize(outcome.trees), 1);
  if (now_.trees > 0) return;
  DrafterState& drafter = drafter_of(now_.trial);
  drafter.next_trial = now_.steps + drafter.wait;
  drafter.wait = std::min(2 * drafter.wait, kLongestWait);
  now_.stay = 0;
}

void ThroughputModel::new_weights() {
  forget(1, kTrialTrees);
  for (DrafterState& drafter : drafters_)
    drafter.wait = kFirstWait, drafter.next_trial = now_.steps;
  now_.stay = 0;
}

// Reduces the weights of everything that was learned.
void ThroughputModel::forget(double factor, double limit) {
  const auto reduce = [&](drafter::Estimate& learned) {
    learned.weight = std::min(factor * learned.weight, limit);
  };
  for (size_t i = 0; i < drafters_.size(); ++i) {
    if (depths_[i] == 0) continue;  // of "off", which learns nothing
    for (Rates& rates : drafters_[i].rates) std::ranges::for_each(rates, reduce);
    reduce(drafters_[i].extra_seconds);
  }
  for (ArmState& arm : states_) reduce(arm.gain), reduce(arm.nodes);
}

nlohmann::json ThroughputModel::save() const {
  return {{"drafters", drafters_}, {"arms", states_}, {"choice", now_}};
}

void ThroughputModel::restore(const nlohmann::json& state) {
  state.at("drafters").get_to(drafters_);
  state.at("arms").get_to(states_);
  state.at("choice").get_to(now_);
  TLT_CHECK_INPUT(drafters_.size() == 1 + std::ranges::max(drafter_) &&
                      states_.size() == arms_.size() &&
                      std::max(now_.current, now_.trial) < arms_.size(),
                  "not the state of these arms");
}

}  // namespace tlt::speculation

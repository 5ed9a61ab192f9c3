// SPDX-License-Identifier: Apache-2.0
#include "speculation/throughput_model.h"

#include <algorithm>
#include <cmath>
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

ThroughputModel::ThroughputModel(const std::vector<Arm>& arms, Setup setup)
    : arms_(arms),
      setup_(std::move(setup)),
      drafter_(arms.size()),
      states_(arms.size()),
      tokens_(arms.size()),
      rates_(arms.size()) {
  std::vector<std::string> kinds;
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    draft_seconds_.push_back(setup_.costs.draft_curve(arms_[arm]));
    const auto known = std::ranges::find(kinds, arms_[arm].kind);
    drafter_[arm] = static_cast<size_t>(known - kinds.begin());
    if (known == kinds.end()) kinds.push_back(arms_[arm].kind);
  }
  const auto off = std::ranges::find_if(arms_, &Arm::is_off);
  TLT_CHECK(off != arms_.end(), "no arm without speculation");
  off_ = now_.current = static_cast<size_t>(off - arms_.begin());
  now_.budget = kBudgetSteps;
  drafters_.resize(kinds.size());  // "off" has one that learns nothing
  for (DrafterState& drafter : drafters_) drafter.wait = kFirstWait;
}

bool ThroughputModel::may_choose(size_t arm, int64_t batch) const {
  return arm == off_ ? setup_.off_competes : arms_[arm].strategy.verify * batch <= setup_.max_rows;
}

// Accepted first choices by depth. A rate that is hardly known is taken from the neighbouring
// positions and the depth before.
ThroughputModel::ByDepth ThroughputModel::first_choices(const DrafterState& drafter,
                                                        size_t position) {
  ByDepth sums = {};
  double rate = kPriorAcceptance, reached = 1;
  const size_t from = position > 0 ? position - 1 : 0, to = std::min(position + 2, kPositions);
  for (size_t depth = 0; depth < kDepths; ++depth) {
    drafter::Estimate estimate{rate, kPrior};
    for (size_t at = from; at < to; ++at) {
      const drafter::Estimate& known = drafter.rates[at][depth];
      estimate.add(known.mean, at == position ? known.weight : std::min(known.weight, kPrior));
    }
    rate = estimate.mean;
    reached *= rate;
    sums[depth + 1] = sums[depth] + reached;
  }
  return sums;
}

double ThroughputModel::gain(size_t arm) const {
  drafter::Estimate gain = drafter_of(arm).gain;
  gain.add(1, kPrior);
  gain = {arms_[arm].strategy.width > 1 ? gain.mean * prior_gain(arms_[arm].strategy) : 1, kPrior};
  gain.add(states_[arm].gain.mean, states_[arm].gain.weight);
  return gain.mean;
}

// Verified trees that tell of the arm.
double ThroughputModel::evidence(size_t arm) const {
  if (arms_[arm].strategy.width > 1) return states_[arm].nodes.weight;
  double trees = 0;
  for (const Rates& rates : drafter_of(arm).rates) trees += rates[0].weight;
  return trees;
}

double ThroughputModel::target_seconds(const StepOutcome& outcome) const {
  return setup_.costs.target_seconds(static_cast<double>(outcome.rows()),
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
  const auto batch = static_cast<double>(load.batch);
  drafter::Estimate nodes{static_cast<double>(arms_[arm].strategy.verify - 1), 1};
  nodes.add(states_[arm].nodes.mean, states_[arm].nodes.weight);
  return setup_.costs.target_seconds(batch * (1 + nodes.mean), batch, load.context) +
         draft_seconds(arm, load.batch);
}

// Returns the largest of rates_ among the arms that may be chosen.
double ThroughputModel::predict(const Load& load) {
  const double sequences = std::accumulate(load.positions.begin(), load.positions.end(), 0.0);
  ByDepth accepted = {};
  double best = 0;
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    if (arm == 0 || drafter_[arm] != drafter_[arm - 1]) {
      accepted = {};
      for (size_t position = 0; position < kPositions; ++position) {
        if (load.positions[position] == 0) continue;
        const ByDepth here = first_choices(drafter_of(arm), position);
        const double share = static_cast<double>(load.positions[position]) / sequences;
        for (size_t i = 0; i <= kDepths; ++i) accepted[i] += share * here[i];
      }
    }
    tokens_[arm] = arm == off_ ? 1 : 1 + gain(arm) * accepted[depth_of(arms_[arm].strategy)];
    rates_[arm] = tokens_[arm] / seconds(arm, load);
    if (may_choose(arm, load.batch)) best = std::max(best, rates_[arm]);
  }
  return best;
}

double ThroughputModel::expected_tokens(size_t arm, const Load& load) {
  predict(load);
  return tokens_[arm];
}

double ThroughputModel::expected_seconds(size_t arm, const Load& load) const {
  return now_.speed * seconds(arm, load);
}

double ThroughputModel::slowdown(const Load& load, int64_t more) {
  Load larger = load;
  larger.batch += more;
  const double now = predict(load);
  return now > 0 ? 1 - predict(larger) / now : 1;
}

size_t ThroughputModel::choose(const Load& load, uint64_t) {
  now_.explores = now_.trees > 0 && may_choose(now_.trial, load.batch);
  const bool fits = load.batch == now_.load.batch || (now_.current == off_ && setup_.off_competes);
  if (!now_.explores && now_.stay-- > 0 && fits) return now_.current;
  now_.load = load;
  if (now_.explores) return now_.trial;
  predict(load);
  settle(load.batch);
  now_.stay = kStaySteps - 1;
  now_.explores = starts_trial(load.batch);
  return now_.explores ? now_.trial : now_.current;
}

void ThroughputModel::settle(int64_t batch) {
  size_t best = off_;
  double best_rate = 0;
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    const bool is_known = arm == off_ || arm == now_.current || evidence(arm) >= kPrior;
    if (!may_choose(arm, batch) || (setup_.off_competes && !is_known)) continue;
    const double rate = rates_[arm] * (arm == now_.current ? 1 + kHysteresis : 1);
    if (rate > best_rate) best = arm, best_rate = rate;
  }
  if (best != now_.current) {
    drafter_of(best).wait = kFirstWait;
    drafter_of(best).next_trial = now_.steps + kFirstWait;
  }
  now_.current = best;
  now_.rate = static_cast<double>(batch) * rates_[best];
}

// Of the drafters whose wait is over, the arm that may be the fastest.
bool ThroughputModel::starts_trial(int64_t batch) {
  if (now_.budget <= 0) return false;
  double best = rates_[now_.current];
  now_.trees = 0;  // of a trial that no longer fits
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    if (arm == off_ || arm == now_.current || !may_choose(arm, batch)) continue;
    if (now_.steps < drafter_of(arm).next_trial) continue;
    const double hope = rates_[arm] * (1 + 1 / std::sqrt(1 + evidence(arm)));
    if (hope > best) best = hope, now_.trial = arm, now_.trees = kTrialTrees;
  }
  return now_.trees > 0;
}

void ThroughputModel::record(size_t arm, const StepOutcome& outcome) {
  ++now_.steps;
  change_weights([](double& weight) { weight *= 1 - 1 / kMemorySteps; });
  for (const drafter::VerifiedTree& tree : outcome.trees) learn_tree(arm, tree);
  learn_seconds(arm, outcome);
  now_.budget = std::min(now_.budget + kExploredShare, kBudgetSteps);
  if (now_.explores && arm == now_.trial) pay_trial(outcome);
  now_.explores = false;
}

void ThroughputModel::learn_tree(size_t played, const drafter::VerifiedTree& tree) {
  order_.resize(tree.nodes.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::sort(order_, [&](int32_t a, int32_t b) {
    const drafter::DraftNode &left = tree.nodes[static_cast<size_t>(a)],
                             &right = tree.nodes[static_cast<size_t>(b)];
    if (left.probability != right.probability) return left.probability > right.probability;
    return std::pair(left.depth, a) < std::pair(right.depth, b);
  });
  const drafter::Strategy& own = arms_[played].strategy;
  const size_t position = position_bucket(tree.position);
  const ByDepth usual = first_choices(drafter_of(played), position);
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    const drafter::Strategy& other = arms_[arm].strategy;
    const bool contains = other.depth <= own.depth && other.width <= own.width &&
                          other.verify <= own.verify && other.width > 1;
    if (arm == played || (contains && drafter_[arm] == drafter_[played]))
      learn_part(tree, arm, usual[depth_of(other)]);
  }
  const double prior = usual[depth_of(own)] * prior_gain(own);
  if (own.width > 1) drafter_of(played).gain.add(tree.accepted_depth() / prior, prior);
  learn_first_choices(tree, drafter_of(played).rates[position]);
}

// Learns from the part of the tree that the arm would have proposed, of which first choices alone
// have `usual` accepted tokens. REQUIRES: order_ is the tree's.
void ThroughputModel::learn_part(const drafter::VerifiedTree& tree, size_t arm, double usual) {
  const drafter::Strategy& strategy = arms_[arm].strategy;
  children_.assign(tree.nodes.size() + 1, 0);
  int64_t nodes = 0, accepted = 0;
  for (const int32_t i : order_) {
    const drafter::DraftNode& node = tree.nodes[static_cast<size_t>(i)];
    int64_t& siblings = children_[static_cast<size_t>(node.parent + 1)];
    if (nodes + 1 < strategy.verify && node.depth <= strategy.depth && siblings >= 0 &&
        siblings < strategy.width)
      ++siblings, ++nodes;
    else
      children_[static_cast<size_t>(i + 1)] = -1;
  }
  for (int32_t i = tree.accepted; i >= 0; i = tree.nodes[static_cast<size_t>(i)].parent)
    accepted += children_[static_cast<size_t>(i + 1)] >= 0;
  states_[arm].gain.add(static_cast<double>(accepted) / usual, usual);
  states_[arm].nodes.add(static_cast<double>(nodes), 1);
}

// A drafter without a proposal has no first choice that could be accepted.
void ThroughputModel::learn_first_choices(const drafter::VerifiedTree& tree, Rates& rates) {
  if (tree.nodes.empty()) rates[0].add(0, 1);
  int32_t tip = drafter::DraftTree::kRoot;
  for (const int32_t i : order_) {
    const drafter::DraftNode& node = tree.nodes[static_cast<size_t>(i)];
    if (node.parent != tip) continue;
    int32_t path = tree.accepted;
    while (path > i) path = tree.nodes[static_cast<size_t>(path)].parent;
    const bool is_accepted = path == i;
    rates[std::min(static_cast<size_t>(node.depth), kDepths) - 1].add(is_accepted, 1);
    if (!is_accepted) return;
    tip = i;
  }
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
  change_weights(
      [](double& weight) { weight = std::min(weight, static_cast<double>(kTrialTrees)); });
  for (DrafterState& drafter : drafters_)
    drafter.wait = kFirstWait, drafter.next_trial = now_.steps;
  now_.stay = 0;
}

// Changes the weights of everything that was learned.
template <class Change>
void ThroughputModel::change_weights(const Change& change) {
  for (DrafterState& drafter : drafters_) {
    for (Rates& rates : drafter.rates)
      for (drafter::Estimate& rate : rates) change(rate.weight);
    change(drafter.gain.weight), change(drafter.extra_seconds.weight);
  }
  for (ArmState& arm : states_) change(arm.gain.weight), change(arm.nodes.weight);
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

// SPDX-License-Identifier: Apache-2.0
#include "speculation/acceptance.h"

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::speculation {
namespace {

constexpr double kLevelAtFirst = 0.5;  // before anything is known
constexpr double kPriorTrees = 4;      // prior weight of kLevelAtFirst and of extrapolated trees
constexpr double kDoubling =
    0.15;  // more accepted tokens for twice the rows (TLT, Figure 13a: 0.1)
constexpr double kKeptShare = 0.998;         // of what was seen, after each step
constexpr double kTreeDeviation = 0.7;       // relative, of the tokens of one tree
constexpr double kExtrapolatedShare = 0.05;  // weight of an extrapolated tree
constexpr double kMostExtrapolated = 20;
constexpr double kSurpriseRate = 0.05;  // some 20 steps
constexpr double kMaxSurprise = 0.8;    // five of its standard deviations
constexpr double kChangedShare = 0.1;
constexpr double kChangedTrees = 8;

// The order in which DraftTree::keep_best keeps.
bool ranks_before(std::span<const drafter::DraftNode> nodes, size_t a, size_t b) {
  if (nodes[a].probability != nodes[b].probability)
    return nodes[a].probability > nodes[b].probability;
  return std::pair(nodes[a].depth, a) < std::pair(nodes[b].depth, b);
}

double power_sum(double base, int64_t terms) {
  double sum = 0, power = 1;
  for (int64_t i = 0; i < terms; ++i) sum += power *= base;
  return sum;
}

}  // namespace

Acceptance::Acceptance(const std::vector<drafter::Strategy>& strategies)
    : strategies_(strategies), reached_(strategies.size()), totals_(strategies.size()) {
  level_ = {kLevelAtFirst, kPriorTrees};
  int64_t deepest = 0;
  for (const drafter::Strategy& strategy : strategies_) {
    deepest = std::max(deepest, strategy.depth);
    const int64_t levels = std::min(strategy.depth, strategy.verify - 1);
    states_.push_back({{}, {1 + power_sum(kLevelAtFirst, levels), kPriorTrees}});
  }
  ahead_.resize(static_cast<size_t>(deepest) + 1);
  path_.reserve(static_cast<size_t>(deepest));
}

bool Acceptance::contains(size_t larger, size_t smaller) const {
  const drafter::Strategy &a = strategies_[larger], &b = strategies_[smaller];
  return b.depth <= a.depth && b.width <= a.width && b.verify <= a.verify;
}

int64_t Acceptance::count_ahead(std::span<const drafter::DraftNode> nodes, int32_t node) {
  const auto own = static_cast<size_t>(node);
  std::ranges::fill(ahead_, 0);
  int64_t siblings = 0;
  for (size_t other = 0; other < nodes.size(); ++other) {
    if (!ranks_before(nodes, other, own)) continue;
    ++ahead_[std::min(static_cast<size_t>(nodes[other].depth), ahead_.size() - 1)];
    siblings += nodes[other].parent == nodes[own].parent;
  }
  for (size_t depth = 1; depth < ahead_.size(); ++depth) ahead_[depth] += ahead_[depth - 1];
  return siblings;
}

void Acceptance::trace(const drafter::VerifiedTree& tree) {
  path_.clear();
  for (int32_t node = tree.accepted; node >= 0; node = tree.nodes[static_cast<size_t>(node)].parent)
    path_.push_back(node);
  std::ranges::fill(reached_, 0);
  for (int64_t depth = 1; depth <= std::ssize(path_); ++depth) {
    const int32_t node = path_[path_.size() - static_cast<size_t>(depth)];
    const int64_t siblings = count_ahead(tree.nodes, node);
    for (size_t i = 0; i < strategies_.size(); ++i) {
      const drafter::Strategy& strategy = strategies_[i];
      if (reached_[i] == depth - 1 && depth <= strategy.depth && siblings < strategy.width &&
          ahead_[static_cast<size_t>(strategy.depth)] < strategy.verify - 1)
        reached_[i] = depth;
    }
  }
}

double Acceptance::continued(size_t strategy, size_t played, double tokens, double full) const {
  const drafter::Strategy &larger = strategies_[strategy], &own = strategies_[played];
  double accepted = tokens - 1;
  if (larger.depth > own.depth) accepted += full * power_sum(level_.mean, larger.depth - own.depth);
  if (larger.verify > own.verify)
    accepted *= 1 + kDoubling * std::log2(static_cast<double>(larger.verify - 1) /
                                          static_cast<double>(own.verify - 1));
  return 1 + std::min(accepted, static_cast<double>(std::min(larger.depth, larger.verify - 1)));
}

bool Acceptance::notice_change(size_t played, double tokens, double trees) {
  const double usual = expected(played);
  const double deviation = kTreeDeviation * usual / std::sqrt(trees);
  surprise_ += kSurpriseRate * ((tokens - usual) / deviation - surprise_);
  if (std::abs(surprise_) < kMaxSurprise) return false;
  forget(kChangedShare, kChangedTrees);
  surprise_ = 0;
  return true;
}

bool Acceptance::record(size_t played, std::span<const drafter::VerifiedTree> trees) {
  if (trees.empty()) return false;
  std::ranges::fill(totals_, 0);
  const auto count = static_cast<double>(trees.size());
  const int64_t depth = strategies_[played].depth;
  double full = 0, accepted = 0;
  for (const drafter::VerifiedTree& tree : trees) {
    trace(tree);
    reached_[played] = tree.accepted_depth();
    for (size_t i = 0; i < strategies_.size(); ++i)
      totals_[i] += static_cast<double>(1 + reached_[i]);
    accepted += static_cast<double>(reached_[played]);
    full += reached_[played] >= depth;
  }
  const bool has_changed = notice_change(played, totals_[played] / count, count);
  level_.weight *= kKeptShare;
  level_.add(accepted / (accepted + count - full), accepted + count - full);
  for (size_t i = 0; i < strategies_.size(); ++i) {
    const double tokens = totals_[i] / count;
    states_[i].seen.weight *= kKeptShare;
    states_[i].extrapolated.weight *= kKeptShare;
    if (contains(played, i)) states_[i].seen.add(tokens, count);
    states_[i].extrapolated.add(continued(i, played, tokens, full / count), count);
  }
  return has_changed;
}

double Acceptance::expected(size_t strategy) const {
  drafter::Estimate both = states_[strategy].seen;
  both.add(states_[strategy].extrapolated.mean, kPriorTrees);
  return both.mean;
}

double Acceptance::deviation(size_t strategy) const {
  const State& state = states_[strategy];
  const double extrapolated =
      std::min(kExtrapolatedShare * state.extrapolated.weight, kMostExtrapolated);
  return kTreeDeviation / std::sqrt(1 + state.seen.weight + extrapolated);
}

void Acceptance::forget(double kept_share, double most_trees) {
  const auto cut = [&](drafter::Estimate& estimate) {
    estimate.weight = std::min(estimate.weight * kept_share, most_trees);
  };
  cut(level_);
  for (State& state : states_) cut(state.seen), cut(state.extrapolated);
}

nlohmann::json Acceptance::save() const {
  nlohmann::json states = nlohmann::json::array();
  for (const State& state : states_) states.push_back({state.seen, state.extrapolated});
  return {{"states", states}, {"level", level_}, {"surprise", surprise_}};
}

void Acceptance::restore(const nlohmann::json& state) {
  for (size_t i = 0; i < states_.size(); ++i) {
    state.at("states").at(i).at(0).get_to(states_[i].seen);
    state.at("states").at(i).at(1).get_to(states_[i].extrapolated);
  }
  state.at("level").get_to(level_);
  state.at("surprise").get_to(surprise_);
}

}  // namespace tlt::speculation

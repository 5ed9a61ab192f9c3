// SPDX-License-Identifier: Apache-2.0
#include "speculation/adaptive_chooser.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::speculation {
namespace {

constexpr double kCaution = 0.05;         // bias margin: log of the predicted ratio to `off`
constexpr double kClearAdvantage = 0.03;  // hysteresis: log of the ratio at once …
constexpr double kSummedAdvantage = 0.2;  // … or summed over steps
constexpr double kOptimism = 2;           // standard deviations
constexpr double kExploredShare = 0.01;
constexpr double kFreeSteps = 12;       // lost to exploration in addition, at the start …
constexpr double kFreeStepsAgain = 4;   // … and after new weights
constexpr double kLeastLoss = 0.5;      // of a try's time: no try is free
constexpr double kMostReading = 20;     // steps of the current arm; longer ones were interrupted
constexpr double kPriorSequences = 60;  // for which the tokens given elsewhere are believed
constexpr double kLeastRatio = 0.5, kMostRatio = 1.5;
constexpr double kMostSequences = 300;  // remembered of an arm at a batch size
constexpr double kMostSteps = 50;       // the same, of the nodes that its trees have
constexpr double kCutShare = 0.9;       // of a strategy's nodes; trees with fewer have been cut
constexpr double kRecentSteps = 1000;
constexpr int64_t kDoubtSteps = 512;      // an idle kind is tried again …
constexpr double kDoubtTrees = 4;         // … with this much left of what was known …
constexpr int64_t kTryTrees = 8;          // … until this many trees were seen
constexpr double kOffDoubtShare = 0.003;  // of speculative time that exploring `off` may lose …
constexpr double kLeastOffLoss = 0.02;    // … which is assumed to lose at least this share
constexpr double kWorthATry = 0.1;        // log of the ratio, if all its draft tokens were accepted
constexpr int64_t kMaxFailedTries = 3;
constexpr double kNewWeightsKept = 0.1;
constexpr double kNewWeightsTrees = 8;
constexpr int64_t kOffStay = 16, kStay = 8;  // steps of `off`, and of others, between choices
constexpr int64_t kOffTry = 12;              // steps of "off" where it is tried; and the first …
constexpr int64_t kUnsettled = 4;            // … after speculative steps do not show its cost
constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace

AdaptiveChooser::AdaptiveChooser(const std::vector<Arm>& arms, Setup setup)
    : arms_(arms),
      setup_(std::move(setup)),
      places_(arms.size()),
      costs_(arms, setup_.costs),
      given_(arms.size(), kMostSequences),
      nodes_(arms.size(), kMostSteps),
      outlooks_(arms.size()),
      rows_(arms.size()),
      tokens_(arms.size()) {
  std::vector<std::string> names;
  std::vector<std::vector<drafter::Strategy>> strategies;
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
  ratios_.resize(kinds_.size());
  current_arm_ = off_;
  free_steps_ = kFreeSteps;
}

double AdaptiveChooser::expected_tokens(size_t arm, int64_t batch) {
  find_tokens(batch);
  return tokens_[arm];
}

double AdaptiveChooser::expected_seconds(size_t arm, const Load& load) {
  find_nodes(load.batch);
  return std::exp(costs_.predict(load, rows_)[arm].log_seconds);
}

double AdaptiveChooser::slowdown(const Load& load, int64_t more) {
  find_nodes(load.batch);
  find_tokens(load.batch);
  const auto best_speed = [&](int64_t sequences) {
    const double times = static_cast<double>(sequences) / static_cast<double>(load.batch);
    double best = 0;
    for (size_t arm = 0; arm < arms_.size(); ++arm)
      if (may_choose(arm, sequences))
        best = std::max(best, tokens_[arm] / costs_.table_seconds(arm, {sequences, load.context},
                                                                  times * rows_[arm]));
    return best;
  };
  const double now = best_speed(load.batch);
  return now > 0 ? 1 - best_speed(load.batch + more) / now : 1;
}

// As many nodes as an arm's trees had at such batch sizes. One that is not known has no more than
// the trees of the same drafter that are cut there, and else what its strategy allows.
void AdaptiveChooser::find_nodes(int64_t batch) {
  for (drafter::Estimate& cut : ratios_) cut = {};
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    if (arm == off_) continue;
    const drafter::Estimate nodes = nodes_.at(arm, batch);
    if (nodes.mean < kCutShare * static_cast<double>(arms_[arm].strategy.verify - 1))
      ratios_[places_[arm].kind].add(nodes.mean, nodes.weight);
  }
  const auto sequences = static_cast<double>(batch);
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    if (arm == off_) {
      rows_[arm] = sequences;
      continue;
    }
    const drafter::Estimate& cut = ratios_[places_[arm].kind];
    double allowed = static_cast<double>(arms_[arm].strategy.verify - 1);
    if (cut.weight > 1) allowed = std::min(allowed, cut.mean);
    drafter::Estimate nodes{allowed, 1};
    const drafter::Estimate known = nodes_.at(arm, batch);
    nodes.add(known.mean, known.weight);
    rows_[arm] = sequences * (1 + nodes.mean);
  }
}

// What acceptance says of any batch size, times what the arm, or one of the same drafter, gave more
// or less than that at such batch sizes.
void AdaptiveChooser::find_tokens(int64_t batch) {
  for (drafter::Estimate& ratio : ratios_) ratio = {1, kPriorSequences};
  for (size_t arm = 0; arm < arms_.size(); ++arm)
    if (arm != off_)
      if (const drafter::Estimate given = given_.at(arm, batch); given.weight > 0)
        ratios_[places_[arm].kind].add(given.mean, given.weight);
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    tokens_[arm] = 1;
    if (arm == off_) continue;
    drafter::Estimate ratio{ratios_[places_[arm].kind].mean, kPriorSequences};
    const drafter::Estimate given = given_.at(arm, batch);
    ratio.add(given.mean, given.weight);
    const Kind& kind = kinds_[places_[arm].kind];
    tokens_[arm] = std::max(1.0, kind.acceptance.expected(places_[arm].strategy) *
                                     std::clamp(ratio.mean, kLeastRatio, kMostRatio));
  }
}

double AdaptiveChooser::explored_share() const {
  return recent_seconds_ > 0 ? explored_seconds_ / recent_seconds_ : 0;
}

bool AdaptiveChooser::may_choose(size_t arm, int64_t batch) const {
  return arm == off_ ? setup_.off_competes : arms_[arm].strategy.verify * batch <= setup_.max_rows;
}

bool AdaptiveChooser::is_off_due(int64_t batch) const {
  const Outlook& off = outlooks_[off_];
  if (off.score == kNever) return false;
  const double off_loss = 1 - std::exp(off.score - outlooks_[current_arm_].score);
  const double lost = std::max(off_loss, kLeastOffLoss) * kOffTry * off.seconds;
  return lost <= kOffDoubtShare * speculative_seconds_[batch_cell(batch)];
}

bool AdaptiveChooser::is_due(const Kind& kind) const {
  return kind.wanted_trees > 0 || kind.idle_steps >= kDoubtSteps << kind.failed_tries;
}

void AdaptiveChooser::judge(const Load& load) {
  find_nodes(load.batch);
  const std::span<const StepCosts::Prediction> costs = costs_.predict(load, rows_);
  find_tokens(load.batch);
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    double tokens_deviation = 0;
    if (arm != off_) {
      const Kind& kind = kinds_[places_[arm].kind];
      tokens_deviation = kind.acceptance.deviation(places_[arm].strategy);
    }
    double score = kNever;
    if (may_choose(arm, load.batch))
      score = std::log(tokens_[arm]) - costs[arm].log_seconds - (arm == off_ ? 0 : kCaution);
    outlooks_[arm] = {
        .score = score,
        .hope = score + kOptimism * std::hypot(tokens_deviation, costs[arm].deviation),
        .seconds = std::exp(costs[arm].log_seconds),
        .tokens_deviation = tokens_deviation,
        .seconds_deviation = costs[arm].deviation};
  }
}

size_t AdaptiveChooser::choose(const Load& load, uint64_t) {
  const int64_t batch = load.batch;
  explores_ = is_try_ = false;
  const bool fits = batch == stay_batch_ || (stay_arm_ == off_ && setup_.off_competes);
  if (stay_ > 0 && fits) {
    --stay_;
    return stay_arm_;
  }
  stay_ = 0;
  judge(load);
  settle();
  if (outlooks_[current_arm_].score == kNever) return stay(off_, batch, kOffStay);
  if (is_off_due(batch)) {
    const double unseen =
        speculative_seconds_[batch_cell(batch)] / outlooks_[off_].seconds;  // steps
    costs_.doubt(off_, std::exp(-unseen / kDoubtSteps));
    return stay(off_, batch, kOffTry);
  }
  const size_t promising = find_promising();
  const bool for_few = is_for_few(promising, batch);
  const double share =
      for_few ? static_cast<double>(kExplorationSequences) / static_cast<double>(batch) : 1;
  explores_ = promising != current_arm_ && can_afford(loss(promising, share));
  is_try_ = explores_ && for_few;
  chosen_seconds_ = outlooks_[promising].seconds;
  if (explores_) return promising;
  return stay(current_arm_, batch, current_arm_ == off_ ? kOffStay : kStay);
}

// Chooses the arm for this many steps.
size_t AdaptiveChooser::stay(size_t arm, int64_t batch, int64_t steps) {
  stay_ = steps - 1;
  stay_arm_ = arm;
  stay_batch_ = batch;
  chosen_seconds_ = outlooks_[arm].seconds;
  return arm;
}

void AdaptiveChooser::settle() {
  const auto best = static_cast<size_t>(std::ranges::max_element(outlooks_, {}, &Outlook::score) -
                                        outlooks_.begin());
  if (best == current_arm_ || outlooks_[best].score == kNever) {
    advantage_ = 0;
    return;
  }
  const double ahead = outlooks_[best].score - outlooks_[current_arm_].score;
  advantage_ += std::min(ahead, kSummedAdvantage);
  if (ahead < kClearAdvantage && advantage_ < kSummedAdvantage) return;
  current_arm_ = best;
  advantage_ = 0;
  if (best != off_) kinds_[places_[best].kind].failed_tries = 0;
}

// The score if every draft token were accepted.
double AdaptiveChooser::best_case(size_t arm) const {
  const drafter::Strategy& strategy = arms_[arm].strategy;
  const auto tokens = static_cast<double>(1 + std::min(strategy.depth, strategy.verify - 1));
  return std::log(tokens / outlooks_[arm].seconds);
}

// Of an idle kind, the cheapest arm that could show it to be clearly better.
std::optional<size_t> AdaptiveChooser::find_due() const {
  std::optional<size_t> cheapest;
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    if (arm == off_ || outlooks_[arm].score == kNever || !is_due(kinds_[places_[arm].kind]))
      continue;
    if (best_case(arm) < outlooks_[current_arm_].score + kWorthATry) continue;
    if (!cheapest || outlooks_[arm].seconds < outlooks_[*cheapest].seconds) cheapest = arm;
  }
  return cheapest;
}

size_t AdaptiveChooser::find_promising() const {
  if (const std::optional<size_t> due = find_due()) return *due;
  size_t best = current_arm_;
  double best_hope = outlooks_[current_arm_].score;
  for (size_t arm = 0; arm < arms_.size(); ++arm)
    if (arm != current_arm_ && outlooks_[arm].hope > best_hope)
      best = arm, best_hope = outlooks_[arm].hope;
  return best;
}

bool AdaptiveChooser::is_for_few(size_t arm, int64_t batch) const {
  const Outlook& outlook = outlooks_[arm];
  return arm != off_ && batch > kExplorationSequences &&
         outlook.tokens_deviation > outlook.seconds_deviation;
}

// Seconds lost by a step with the arm for this share of the sequences, and no draft tokens for the
// others. The seconds in which the current arm would have given the same tokens are not lost.
double AdaptiveChooser::loss(size_t arm, double share) const {
  const double off = outlooks_[off_].seconds, in_turn = outlooks_[current_arm_].seconds;
  const double seconds = off + share * (outlooks_[arm].seconds - off);
  const double tokens = 1 + share * (tokens_[arm] - 1);
  return std::max(kLeastLoss * seconds, seconds - tokens / tokens_[current_arm_] * in_turn);
}

bool AdaptiveChooser::can_afford(double lost) const {
  return lost <= free_steps_ * outlooks_[current_arm_].seconds ||
         explored_seconds_ + lost <= kExploredShare * recent_seconds_;
}

// After the step is known. As expected now, not as it took: a step that was interrupted must not
// use up what is for exploration. But what the drafter had to read counts, up to a bound.
void AdaptiveChooser::count_exploration(size_t arm, const StepOutcome& outcome, double reading) {
  judge(outcome.load());
  const double in_turn = outlooks_[current_arm_].seconds;
  const auto drafted = static_cast<double>(outcome.trees.size());
  const double share = arm == off_ ? 1 : drafted / static_cast<double>(outcome.batch);
  const double lost = loss(arm, share) + std::min(reading, kMostReading * in_turn);
  if (free_steps_ * in_turn >= lost)
    free_steps_ -= lost / in_turn;
  else
    explored_seconds_ += lost;
}

void AdaptiveChooser::record(size_t arm, const StepOutcome& outcome) {
  const auto batch = static_cast<double>(outcome.batch);
  const auto rows = static_cast<double>(outcome.rows());
  const double reading = seconds_of_reading(arm, outcome);
  for (Kind& kind : kinds_) ++kind.idle_steps;
  off_steps_ = arm == off_ ? off_steps_ + 1 : 0;
  const bool is_settled = arm != off_ || off_steps_ > kUnsettled;
  if (arm != off_) {
    learn_tokens(arm, outcome);
    if (!is_try_) nodes_.add(arm, outcome.batch, rows / batch - 1, 1);
  }
  if (!outcome.has_prompt_rows) {
    if (!is_try_ && is_settled) costs_.record(arm, outcome.load(), rows, outcome.seconds - reading);
    const double kept = 1 - 1 / kRecentSteps;
    double& speculative = speculative_seconds_[batch_cell(outcome.batch)];
    if (arm != off_)
      speculative += chosen_seconds_;
    else if (is_settled)
      speculative = 0;
    recent_seconds_ = recent_seconds_ * kept + chosen_seconds_;
    explored_seconds_ *= kept;
    if (explores_) count_exploration(arm, outcome, reading);
  }
  explores_ = is_try_ = false;
}

// A drafter that was idle in the step before reads what it has missed. That is not the arm's cost:
// as the current arm, it would not have missed it.
double AdaptiveChooser::seconds_of_reading(size_t arm, const StepOutcome& outcome) const {
  if (arm == off_ || kinds_[places_[arm].kind].idle_steps == 0) return 0;
  const auto drafted = static_cast<double>(outcome.trees.size());
  return std::max(0.0, outcome.draft_seconds - costs_.draft_seconds(arm, drafted));
}

void AdaptiveChooser::learn_tokens(size_t arm, const StepOutcome& outcome) {
  const auto [index, strategy] = places_[arm];
  Kind& kind = kinds_[index];
  if (is_due(kind) && kind.wanted_trees == 0) {
    kind.acceptance.forget(1, kDoubtTrees);
    forget_given(index);
    kind.failed_tries = std::min(kind.failed_tries + 1, kMaxFailedTries);
    kind.wanted_trees = kTryTrees;
  }
  kind.wanted_trees = std::max<int64_t>(0, kind.wanted_trees - std::ssize(outcome.trees));
  double given = 0;
  for (const drafter::VerifiedTree& tree : outcome.trees) given += 1 + tree.accepted_depth();
  const auto trees = static_cast<double>(outcome.trees.size());
  const double ratio = given / (trees * kind.acceptance.expected(strategy));
  if (kind.acceptance.record(strategy, outcome.trees))
    forget_given(index);
  else if (!outcome.trees.empty() && !is_try_)
    given_.add(arm, outcome.batch, ratio, trees);
  kind.idle_steps = 0;
}

void AdaptiveChooser::forget_given(size_t kind) {
  for (size_t arm = 0; arm < arms_.size(); ++arm)
    if (arm != off_ && places_[arm].kind == kind) given_.forget(arm, 0, kDoubtTrees);
}

void AdaptiveChooser::new_weights() {
  for (Kind& kind : kinds_) {
    kind.acceptance.forget(kNewWeightsKept, kNewWeightsTrees);
    kind.failed_tries = 0;
  }
  given_.forget(kNewWeightsKept, kNewWeightsTrees);
  free_steps_ = std::max(free_steps_, kFreeStepsAgain);
  advantage_ = 0;
  stay_ = 0;
}

nlohmann::json AdaptiveChooser::save() const {
  nlohmann::json kinds = nlohmann::json::array();
  for (const Kind& kind : kinds_)
    kinds.push_back({{"acceptance", kind.acceptance.save()},
                     {"idle_steps", kind.idle_steps},
                     {"failed_tries", kind.failed_tries},
                     {"wanted_trees", kind.wanted_trees}});
  return {{"kinds", kinds},
          {"costs", costs_.save()},
          {"given", given_.save()},
          {"nodes", nodes_.save()},
          {"favourite", current_arm_},
          {"advantage", advantage_},
          {"explores", explores_},
          {"is_exploration", is_try_},
          {"off_steps", off_steps_},
          {"guessing_seconds", speculative_seconds_},
          {"stay", stay_},
          {"stay_arm", stay_arm_},
          {"stay_batch", stay_batch_},
          {"chosen_seconds", chosen_seconds_},
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
    kind.at("wanted_trees").get_to(kinds_[i].wanted_trees);
  }
  costs_.restore(state.at("costs"));
  given_.restore(state.at("given"));
  nodes_.restore(state.at("nodes"));
  state.at("favourite").get_to(current_arm_);
  state.at("advantage").get_to(advantage_);
  state.at("explores").get_to(explores_);
  state.at("is_exploration").get_to(is_try_);
  state.at("off_steps").get_to(off_steps_);
  state.at("guessing_seconds").get_to(speculative_seconds_);
  state.at("stay").get_to(stay_);
  state.at("stay_arm").get_to(stay_arm_);
  state.at("stay_batch").get_to(stay_batch_);
  state.at("chosen_seconds").get_to(chosen_seconds_);
  state.at("recent_seconds").get_to(recent_seconds_);
  state.at("free_steps").get_to(free_steps_);
  state.at("explored_seconds").get_to(explored_seconds_);
}

}  // namespace tlt::speculation

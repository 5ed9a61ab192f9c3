// SpeculationPolicy: chooses drafter and strategy of each engine step, drops draft tokens that are
// not worth a token row, and learns from the outcome. Either fixed, or adaptive with a tuner.
//
// Owns       the tuner.
// Borrows    the drafters.
// Not here   how the tuner chooses (speculation/tuner.h) and what a row is worth (row_budget.h).
// Threading  engine thread only; no locks; no allocation once warm.
//
//   DrafterSet::Member* member = policy.choose(load);   // null: non-speculative
//   … member fills the trees of the requests …
//   policy.prune(*member, requests, load);
//   … the engine step …
//   policy.learn(member, outcome);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "rollout/drafter_set.h"
#include "speculation/row_budget.h"
#include "speculation/tuner.h"

namespace tlt::rollout {

class SpeculationPolicy {
 public:
  static constexpr double kMeasureAfterSeconds = 0.5;

  // The tuner chooses a drafter and a strategy, or `off`, for each step.
  // REQUIRES: costs or measure_costs.
  struct Adaptive {
    speculation::SpeculationOptions options;
    // Kinds that the tuner chooses from: drafters, and "mixed" for all of them in one tree. Empty:
    // each drafter alone.
    std::vector<std::string> kinds = {};
    // nullopt: measured by measure_costs after kMeasureAfterSeconds of decoding, without drafts
    // until then. Shorter work would not repay the time of measuring.
    std::optional<speculation::CostTable> costs = {};
    std::function<speculation::CostTable()> measure_costs = {};
    int64_t max_rows = 0;  // of a forward pass
    uint64_t seed = 0;
    const Clock* clock = &steady_clock();  // times the steps
  };

  // This arm in every step, until its drafter fails.
  SpeculationPolicy(DrafterSet& drafters, speculation::Arm arm);
  SpeculationPolicy(DrafterSet& drafters, Adaptive adaptive);

  // Measures the costs, once enough time has been spent without them. Not part of a step's time.
  void measure_if_due();
  // The drafter of the next step, or null: non-speculative.
  DrafterSet::Member* choose(const speculation::Load& load);
  // Arm of the latest choose().
  const speculation::Arm& arm() const { return arm_; }
  // Whether that step should draft for kExplorationSequences sequences at most.
  bool is_exploration() const { return tuner_ && tuner_->is_exploration(); }
  // Keeps the nodes that are worth their token row.
  void prune(const DrafterSet::Member& drafter, std::span<const drafter::DraftRequest> requests,
             const speculation::Load& load);
  // Learns from a step that decoded. drafting: its drafter, or null.
  void learn(DrafterSet::Member* drafting, const speculation::StepOutcome& step);

  // What decoding the step's tokens without speculation would have taken: a non-speculative step
  // for each token that a sequence got, at the cost table's ratio of such a step to this one.
  // nullopt: the policy is fixed and has no cost table.
  std::optional<double> plain_seconds(const speculation::StepOutcome& step) const;
  // Of the cost table, if there is one.
  std::optional<double> ridge() const;

  // The policy model or a draft model has been updated.
  void new_weights();
  // Tuner::spare_capacity(); 0 without a tuner.
  int64_t spare_capacity(const speculation::Load& load);
  // REQUIRES: no tuner. Holds from the next step on.
  void set_strategy(const drafter::Strategy& strategy) { arm_.strategy = strategy; }
  const speculation::Tuner* tuner() const { return tuner_.get(); }  // or null
  const Clock& clock() const { return adaptive_ ? *adaptive_->clock : steady_clock(); }

  // As those of Speculation.
  std::string save() const;
  void restore(const std::string& json, const std::string& place);

 private:
  void make_tuner();

  DrafterSet& drafters_;
  const std::optional<Adaptive> adaptive_;       // nullopt: fixed
  std::optional<speculation::CostTable> costs_;  // nullopt: not measured yet, or fixed
  std::unique_ptr<speculation::Tuner> tuner_;    // null: fixed, no costs, or no drafter works
  speculation::Arm arm_;
  int64_t failures_ = 0;           // drafters that the tuner knows to have failed
  double unmeasured_seconds_ = 0;  // decoding time before costs were measured
  // Scratch of prune().
  std::vector<const drafter::DraftTree*> trees_;
  std::vector<int32_t> keep_;
  speculation::RowScratch nodes_;
};

}  // namespace tlt::rollout

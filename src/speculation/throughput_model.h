// ThroughputModel: predicts the tokens per second of every arm and chooses the fastest.
//
//   tokens per second = sequences x (1 + E[accepted]) / seconds
//   E[accepted]       = gain(arm) x sum over d <= depth of a(1) a(2) … a(d)
//   seconds           = speed x (target_seconds(rows, sequences, context) + draft_seconds(arm))
//
// a(d) is the acceptance rate of the drafter's first choice at draft depth d, given that those
// before it were accepted, by position in the response. Every verified tree that has the node
// tells it, so all arms of a drafter share it. gain(arm) is what the arm's trees accept relative to
// first choices alone; a tree also shows what each smaller one would have accepted of it.
// `rows` are those that were verified after the row budget. `speed` is one factor for all
// arms, so that it matters for no choice.
//
// Switching    to an arm that is predicted clearly faster and of which enough trees were verified.
// Exploration  a trial: an arm that may be faster than the current one, within its uncertainty, is
//              played for a few sequences until enough trees were verified, paid from a budget of
//              1 % of the time. The wait until a drafter's next trial doubles after each.
//
// Owns       the learned acceptance, gains and speed.
// Threading  engine thread only; no locks; no allocation once warm. No random numbers.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "drafter/estimate.h"
#include "drafter/tree_parts.h"
#include "speculation/cost_table.h"
#include "speculation/tuning_policy.h"

namespace tlt::speculation {

inline constexpr size_t kDepths = 16;  // deeper ones count as the deepest

class ThroughputModel : public TuningPolicy {
 public:
  // No arm with more than `max_rows` token rows in a forward pass is chosen. REQUIRES: one arm is
  // "off".
  ThroughputModel(const std::vector<Arm>& arms, const CostTable& costs, int64_t max_rows);

  size_t choose(const Load& load, uint64_t choice) override;
  bool is_exploration() const override {
    return now_.trees > 0 && now_.load.batch > kExplorationSequences;
  }
  void record(size_t arm, const StepOutcome& outcome) override;
  double tokens_per_second() const override { return now_.rate; }
  double sequence_rate(const Load& load) override { return predict(load); }
  void new_weights() override;
  nlohmann::json save() const override;
  void restore(const nlohmann::json& state) override;

  // Predictions for a step with this arm: tokens of a sequence, seconds.
  double expected_tokens(size_t arm, const Load& load) { return predict(load), tokens(arm); }
  double expected_seconds(size_t arm, const Load& load) const {
    return now_.speed * seconds(arm, load);
  }

 private:
  using Rates = std::array<drafter::Estimate, kDepths>;
  using ByDepth = std::array<double, kDepths + 1>;

  struct DrafterState {
    std::array<Rates, kPositions> rates;  // a(d)
    drafter::Estimate extra_seconds;      // of drafting for a sequence, above the cost table's
    int64_t wait = 0, next_trial = 0;     // steps between trials; step of the next one
    NLOHMANN_DEFINE_TYPE_INTRUSIVE(DrafterState, rates, extra_seconds, wait, next_trial)
  };
  struct ArmState {
    drafter::Estimate gain, nodes;  // nodes: verified per tree
    NLOHMANN_DEFINE_TYPE_INTRUSIVE(ArmState, gain, nodes)
  };
  struct Choice {
    Load load{0};        // of the last comparison
    int64_t steps = 0;   // recorded so far
    size_t drafter = 0;  // of the last one
    size_t current = 0;  // arm
    double rate = 0;     // its tokens per second at speed 1
    double speed = 1;    // of forward passes: measured seconds / predicted, a running median
    int64_t stay = 0;    // steps until arms are compared again
    size_t trial = 0;    // arm
    int64_t trees = 0;   // until the trial is over; from 0 down: there is none
    double budget = 0;   // for trials, in steps of the current arm
    NLOHMANN_DEFINE_TYPE_INTRUSIVE(Choice, load, steps, drafter, current, rate, speed, stay, trial,
                                   trees, budget)
  };

  DrafterState& drafter_of(size_t arm) { return drafters_[drafter_[arm]]; }
  const DrafterState& drafter_of(size_t arm) const { return drafters_[drafter_[arm]]; }
  bool may_choose(size_t arm, int64_t batch) const;
  // Up to `depths`.
  static ByDepth first_choices(const DrafterState& drafter, const Positions& positions,
                               size_t depths);
  double evidence(size_t arm) const;
  double target_seconds(const StepOutcome& outcome) const;
  double draft_seconds(size_t arm, int64_t sequences) const;
  double seconds(size_t arm, const Load& load) const;
  double seconds(size_t arm, int64_t batch, CostTable::Passes& passes) const;
  double predict(const Load& load);
  double tokens(size_t arm) const;
  void settle(int64_t batch);
  void start_trial(int64_t batch);
  void learn_tree(size_t played, const drafter::VerifiedTree& tree);
  void learn_seconds(size_t arm, const StepOutcome& outcome);
  void pay_trial(const StepOutcome& outcome);
  void forget(double factor, double limit);

  const std::vector<Arm> arms_;
  const CostTable costs_;
  const int64_t max_rows_;
  size_t off_ = 0;
  std::vector<size_t> drafter_;  // [arm]
  std::vector<size_t> depths_;   // [drafter] of its deepest arm
  // [arm] Arms that a verified tree of this one tells of: itself, and the trees that its trees
  // contain.
  std::vector<std::vector<size_t>> told_;
  std::vector<Curve> draft_seconds_;  // [arm] by sequences

  std::vector<DrafterState> drafters_;
  std::vector<ArmState> states_;  // [arm]
  Choice now_;

  // Scratch.
  std::vector<ByDepth> accepted_;  // [drafter] first choices, for a load
  std::vector<double> rates_;      // [arm] tokens of a sequence per second at speed 1
  drafter::TreeParts parts_;
};

}  // namespace tlt::speculation

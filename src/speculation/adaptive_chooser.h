// AdaptiveChooser: chooses the arm with the highest predicted tokens per second.
//
// Tokens come from acceptance.h, one object per kind of drafter for all batch sizes, corrected by
// the trees seen at similar batch sizes, where they are pruned (row_budget.h); seconds come from
// cost_model.h, for the rows that the arm's trees have there. `off` is an arm that gives one token.
// Four rules correct for noise:
//
//   Bias margin  speculation must be predicted >= 5 % faster than `off`: the maximum of noisy
//                estimates is biased upward, and an interruption costs more in a long step.
//   Hysteresis   another arm becomes the current arm when it is predicted >= 3 % faster, or less
//                for long enough. Arms are re-evaluated only every few steps, and with speculation
//                when the batch size changes: to evaluate costs up to 4 % of a small model's step.
//   Exploration  an arm that may be faster within its uncertainty is explored. The loss against the
//                current arm is at most 1 % of the recent time, plus 12 steps at the start and 4
//                after new weights; so arms with a small loss are explored often and others rarely.
//                If acceptance is the dominant uncertainty, an exploration step drafts for a few
//                sequences only: a drafter that was idle has much to read of each.
//   Staleness    a kind of drafter unused for 512 steps is explored again, with its statistics
//                discounted, until eight of its trees were seen. While it never becomes current,
//                the interval doubles, up to 4,096 steps. `off` is explored after long speculation,
//                for at most 0.3 % of that time: it may have looked slow in a transient slowdown
//                only. It is played for 12 steps in a row, of which the first 4 do not count (after
//                speculative steps the processor's caches are cold); the others count more than
//                what was seen long before.
//
// Owns       the learned costs and acceptance.
// Threading  engine thread only; no locks; no allocation once warm. No random numbers.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "speculation/acceptance.h"
#include "speculation/cost_model.h"

namespace tlt::speculation {

class AdaptiveChooser : public TuningPolicy {
 public:
  struct Setup {
    CostTable costs;
    bool off_competes = true;  // else "off" is chosen only when nothing else fits
    int64_t max_rows = 2048;   // of a forward pass; no arm with more is chosen
  };

  // REQUIRES: one arm is "off".
  AdaptiveChooser(const std::vector<Arm>& arms, Setup setup);

  size_t choose(const Load& load, uint64_t choice) override;
  bool is_exploration() const override { return is_try_; }
  void record(size_t arm, const StepOutcome& outcome) override;
  void new_weights() override;
  nlohmann::json save() const override;
  void restore(const nlohmann::json& state) override;

  // As far as is known, of a step with this arm.
  double expected_tokens(size_t arm, int64_t batch);  // a sequence
  double expected_seconds(size_t arm, const Load& load);
  double slowdown(const Load& load, int64_t more) override;

  // Of the recent time, what arms out of turn lost, the free steps aside.
  double explored_share() const;

 private:
  // All strategies of one drafter.
  struct Kind {
    std::string name;
    Acceptance acceptance;
    int64_t idle_steps = 0;    // since it was last played
    int64_t failed_tries = 0;  // since it was last current
    int64_t wanted_trees = 0;  // before a try is over
  };
  struct Place {
    size_t kind = 0;      // in kinds_
    size_t strategy = 0;  // in its acceptance
  };

  bool may_choose(size_t arm, int64_t batch) const;
  bool is_for_few(size_t arm, int64_t batch) const;
  bool is_off_due(int64_t batch) const;
  size_t stay(size_t arm, int64_t batch, int64_t steps);
  bool is_due(const Kind& kind) const;
  void judge(const Load& load);     // fills outlooks_
  void find_nodes(int64_t batch);   // fills rows_
  void find_tokens(int64_t batch);  // fills tokens_
  void settle();                    // updates current_arm_
  double best_case(size_t arm) const;
  std::optional<size_t> find_due() const;
  size_t find_promising() const;
  double loss(size_t arm, double share) const;
  bool can_afford(double lost) const;
  void count_exploration(size_t arm, const StepOutcome& outcome, double reading);
  double seconds_of_reading(size_t arm, const StepOutcome& outcome) const;
  void learn_tokens(size_t arm, const StepOutcome& outcome);
  void forget_given(size_t kind);

  const std::vector<Arm> arms_;
  const Setup setup_;
  size_t off_ = 0;
  std::vector<Place> places_;  // [arm]
  std::vector<Kind> kinds_;
  StepCosts costs_;
  CellMeans given_;  // tokens a sequence, by what acceptance said
  CellMeans nodes_;  // of trees, a sequence; "off" has none

  size_t current_arm_ = 0;
  double advantage_ = 0;       // of others over it, summed since one was ahead
  bool explores_ = false;      // the last choice is not the current arm …
  bool is_try_ = false;        // … and for a few sequences only
  int64_t off_steps_ = 0;      // since the last speculative step
  int64_t stay_ = 0;           // steps for which …
  size_t stay_arm_ = 0;        // … this arm stays chosen …
  int64_t stay_batch_ = 0;     // … while the batch is this one, unless it is "off"
  double chosen_seconds_ = 0;  // of a step with the last choice, as expected
  double recent_seconds_ = 0;  // forgotten with kRecentSteps
  double explored_seconds_ = 0;
  double free_steps_ = 0;  // of the current arm, that exploration may still lose

  // What is thought of an arm at a batch size.
  struct Outlook {
    double score = 0;    // log (tokens a sequence / second), caution off; -infinity: not allowed
    double hope = 0;     // what the score may be
    double seconds = 0;  // of a step, when it was judged last
    double tokens_deviation = 0, seconds_deviation = 0;  // relative
  };
  // Speculative seconds since `off` was last seen at such batch sizes, as expected.
  std::array<double, kBatchCells> speculative_seconds_{};
  // Scratch, by arm.
  std::vector<Outlook> outlooks_;
  std::vector<double> rows_;
  std::vector<double> tokens_;
  std::vector<drafter::Estimate> ratios_;  // [kind]
};

}  // namespace tlt::speculation

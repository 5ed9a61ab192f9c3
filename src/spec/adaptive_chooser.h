// AdaptiveChooser: takes the arm with the most tokens per second, by what is known of each.
//
// Tokens come from acceptance.h, one for each kind of drafter, whatever the batch size, corrected
// by what trees gave at similar ones, where they are cut to what pays (row_budget.h); seconds from
// cost_model.h, for the rows that the arm's trees have there. "Off" is an arm that gives one token.
// Four rules keep that honest:
//
//   Caution      guesses must promise 5 % more than none: the best of many estimates is too good on
//                average, and a step that is interrupted costs more when it is a long one.
//   Hysteresis   another arm takes over when it is better by 3 %, or by less for long enough. The
//                arm in turn is played a few times before all are judged again, one with guesses
//                only while the batch size stays: to choose costs as much as 4 % of a small model's
//                step, and sequences end and begin every few steps.
//   Exploration  an arm that may be better, as far as its uncertainty goes, is tried out of turn.
//                What such steps lose against the arm in turn is at most 1 % of the recent time,
//                and 12 steps more at the start and 4 after new weights: so arms that lose little
//                are tried often and those that lose much hardly ever. While its guesses are in
//                doubt more than its seconds, it drafts for a few sequences only: a drafter that
//                was not asked for long has much to read of each.
//   Doubt        a kind that was not played for 512 steps is tried, even if it seemed hopeless, and
//                little is left of what was known, until eight of its trees were seen. While it is
//                never in turn, the time to the next try doubles, up to 4,096 steps. "Off" is tried
//                where there were guesses for long, as often as at most 0.3 % of that time may be
//                lost: it may have looked slow only because the machine was. That is for 12 steps
//                in a row, and the first 4 say nothing: behind guesses a step finds less in the
//                processor's caches. The others count for more than what was seen long before.
//
// Owns       what was learned of costs and acceptance.
// Threading  engine thread only; no locks; no allocation once warm. No random numbers.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "spec/acceptance.h"
#include "spec/cost_model.h"

namespace tlt::spec {

class AdaptiveChooser : public Chooser {
 public:
  struct Setup {
    CostTable costs;
    bool off_competes = true;  // else "off" is chosen only when nothing else fits
    int64_t max_rows = 2048;   // of a forward pass; no arm with more is chosen
  };

  // REQUIRES: one arm is "off".
  AdaptiveChooser(const std::vector<Arm>& arms, Setup setup);

  size_t choose(const Load& load, uint64_t choice) override;
  bool is_try() const override { return is_try_; }
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
    int64_t failed_tries = 0;  // since it was last in turn
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
  void settle();                    // updates favourite_
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

  size_t favourite_ = 0;       // the arm in turn
  double advantage_ = 0;       // of others over it, summed since one was ahead
  bool explores_ = false;      // the last choice was out of turn …
  bool is_try_ = false;        // … and for a few sequences only
  int64_t off_steps_ = 0;      // since the last one with guesses
  int64_t stay_ = 0;           // steps for which …
  size_t stay_arm_ = 0;        // … this arm stays chosen …
  int64_t stay_batch_ = 0;     // … while the batch is this one, unless it is "off"
  double chosen_seconds_ = 0;  // of a step with the last choice, as expected
  double recent_seconds_ = 0;  // forgotten with kRecentSteps
  double explored_seconds_ = 0;
  double free_steps_ = 0;  // of the arm in turn, that exploration may still lose

  // What is thought of an arm at a batch size.
  struct Outlook {
    double score = 0;    // log (tokens a sequence / second), caution off; -infinity: not allowed
    double hope = 0;     // what the score may be
    double seconds = 0;  // of a step, when it was judged last
    double tokens_deviation = 0, seconds_deviation = 0;  // relative
  };
  // With guesses since "off" was last seen at such batch sizes, as expected.
  std::array<double, kBatchCells> guessing_seconds_{};
  // Scratch, by arm.
  std::vector<Outlook> outlooks_;
  std::vector<double> rows_;
  std::vector<double> tokens_;
  std::vector<Estimate> ratios_;  // [kind]
};

}  // namespace tlt::spec

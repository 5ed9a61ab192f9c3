// Tuner: chooses the drafter and strategy (the arm) of each engine step, and learns from the step.
//
// Owns       the arms (every drafter with every strategy, and `off`), the learned state.
// Not here   the policies (throughput_model.h, bandit.h); how many token rows each sequence gets
//            (row_budget.h).
// Threading  engine thread only; no locks; no allocation once warm.
//
//   Tuner tuner(options, {.kinds = {"suffix", "eagle"}, .costs = CostTable(forwards, drafts)});
//   const Arm& arm = tuner.choose({batch, context});
//   … the engine step …
//   tuner.record(arm, {.batch = batch, .context = context, .tokens = emitted, .trees = trees,
//                      .seconds = seconds});
//   tuner.new_weights();                    // policy or draft model changed
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "speculation/cost_table.h"
#include "speculation/speculation_options.h"
#include "speculation/tuning_policy.h"

namespace tlt::speculation {

// Statistics of an arm.
struct ArmReport {
  Arm arm;
  int64_t plays = 0;             // steps
  double acceptance_length = 0;  // mean tokens per sequence and step, bonus token included
  double tokens_per_second = 0;
};

struct TunerReport {
  std::vector<ArmReport> arms;
  int64_t steps = 0;
  double speculation_share = 0;  // share of speculative steps
  // Share of the time that the best arm in hindsight, per batch size and context length, would have
  // saved. An estimate: only arms with at least ten plays count.
  double regret = 0;
};
nlohmann::json to_json(const TunerReport& report);

class Tuner {
 public:
  struct Setup {
    std::vector<std::string> kinds;  // of the drafters
    CostTable costs;
    int64_t max_rows = 2048;  // token rows of a forward pass
    uint64_t seed = 0;
  };

  // REQUIRES: options that have passed check(); at least one kind.
  Tuner(const SpeculationOptions& options, const Setup& setup);
  ~Tuner();

  const std::vector<Arm>& arms() const { return arms_; }

  // The arm of the next step. The reference is valid as long as the tuner.
  const Arm& choose(const Load& load);

  // True when that step is an exploration step: draft for at most kExplorationSequences sequences.
  bool is_exploration() const { return is_exploration_; }

  // Records the outcome of a step. REQUIRES: an arm of arms().
  void record(const Arm& arm, const StepOutcome& outcome);

  // TuningPolicy::tokens_per_second() of that step.
  double tokens_per_second() const { return policy_->tokens_per_second(); }

  // Spare capacity: the number n of further sequences, at most as many as the load has, that slow
  // each sequence by at most 3 %, and by at most a quarter of the slowdown that a cost proportional
  // to the rows would give. Predicted from the cost table by ADAPTIVE; 0 with BEG.
  int64_t spare_capacity(const Load& load);

  // Policy or draft model changed: learned acceptance counts less, learned costs are kept.
  void new_weights();

  TunerReport report() const;

  // The learned state as JSON. After try_restore() the tuner continues as the saved one would have;
  // false (and nothing changed) when that one had other arms or options. InputError names `place`
  // when the text is not the state of a tuner.
  std::string save() const;
  [[nodiscard]] bool try_restore(const std::string& json, const std::string& place);

 private:
  struct Totals {
    int64_t plays = 0;
    int64_t sequences = 0;
    int64_t tokens = 0;
    double seconds = 0;
  };
  // Arm, and similar batch sizes and context lengths: one cell an octave, two for batch sizes.
  static constexpr size_t kBatchCells = 21, kContextCells = 8;
  using Cell = std::array<size_t, 3>;

  static Cell cell_of(size_t arm, const StepOutcome& outcome);
  std::string identity() const;  // format, options and arms that a saved state belongs to
  double regret() const;

  const SpeculationOptions options_;
  const std::vector<Arm> arms_;  // `off` first
  std::unique_ptr<TuningPolicy> policy_;
  uint64_t choices_ = 0;
  bool is_exploration_ = false;
  std::map<Cell, Totals> totals_;  // of cells with plays
};

}  // namespace tlt::speculation

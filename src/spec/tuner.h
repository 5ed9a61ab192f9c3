// Tuner: says before each engine step how to speculate, and learns from the step.
//
// Owns       the arms (every drafter with every strategy, and "off"), the gate, what was learned.
// Not here   how it chooses (bandit.h, adaptive_chooser.h); how many rows each sequence gets of a
//            step (row_budget.h).
// Threading  engine thread only; no locks; no allocation once warm.
//
//   Tuner tuner(options, {.kinds = {"suffix", "eagle"}, .costs = CostTable(forwards, drafts)});
//   tuner.begin_rollout();
//   const Arm& arm = tuner.choose({batch, context});
//   … the engine step …
//   tuner.record(arm, {.batch = batch, .context = context, .tokens = emitted, .trees = trees,
//                      .seconds = seconds});
//   tuner.new_weights();                    // policy or drafter changed
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "spec/chooser.h"
#include "spec/cost_model.h"
#include "spec/gate.h"
#include "spec/speculation_options.h"

namespace tlt::spec {

// What came of an arm.
struct ArmReport {
  Arm arm;
  int64_t plays = 0;             // steps
  double acceptance_length = 0;  // tokens a sequence and step, the bonus token included
  double tokens_per_second = 0;
};

struct TunerReport {
  std::vector<ArmReport> arms;
  int64_t steps = 0;
  double speculation_share = 0;  // of the steps
  // Of the time, what would have been saved by the arm that turned out best at each batch size and
  // length of texts. An estimate: an arm counts where it has been played ten times.
  double regret = 0;
};
nlohmann::json to_json(const TunerReport& report);

class Tuner {
 public:
  struct Setup {
    std::vector<std::string> kinds;  // of the drafters there are
    CostTable costs;
    int64_t max_rows = 2048;  // of a forward pass
    uint64_t seed = 0;
  };

  // REQUIRES: options that have passed check(); a kind.
  Tuner(const SpeculationOptions& options, Setup setup);
  ~Tuner();

  const std::vector<Arm>& arms() const { return arms_; }

  // How to decode the next step. Valid as long as the tuner.
  const Arm& choose(const Load& load);

  // That step is a try: at most kTrySequences sequences are to be drafted for.
  bool is_try() const { return is_try_; }

  // What the step gave. REQUIRES: an arm of arms().
  void record(const Arm& arm, const StepOutcome& outcome);

  // So many more sequences, at most as many again, could decode beside these and hardly slow them
  // down: by at most 3 %, and by a quarter of what they would where every row costs the same. As
  // far as ADAPTIVE knows; the bandits do not: 0.
  int64_t room_beside(const Load& load);

  // Sequences start from their prompts: FastRL's gate closes.
  void begin_rollout() { gate_.begin_rollout(); }

  // Policy or drafter changed: what is known of acceptance counts less, of costs it stays.
  void new_weights();

  TunerReport report() const;

  // All that is known, as JSON. try_restore() takes it back, and the tuner goes on as the saved one
  // would have; false (and nothing changed) when that one had other arms or options. InputError
  // names the place when the text is not a tuner's.
  std::string save() const;
  [[nodiscard]] bool try_restore(const std::string& json, const std::string& place);

 private:
  struct Totals {
    int64_t plays = 0;
    int64_t sequences = 0;
    int64_t tokens = 0;
    double seconds = 0;
  };
  using ArmTotals = std::array<std::array<Totals, kContextBands>, kBatchCells>;

  std::string identity() const;  // of what a saved state is good for
  double regret() const;

  const SpeculationOptions options_;
  const std::vector<Arm> arms_;  // "off" first
  Gate gate_;
  std::unique_ptr<Chooser> chooser_;
  uint64_t choices_ = 0;
  bool is_try_ = false;
  std::vector<ArmTotals> totals_;  // [arm]
};

}  // namespace tlt::spec

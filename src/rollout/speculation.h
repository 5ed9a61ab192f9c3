// Speculation: the draft trees of each engine step. Chooses the drafter and the size of the trees,
// requests them, and reports the outcome of verification to drafters and tuner.
//
// The target decides every token, so speculation changes none
// (tests/invariants/speculation_never_changes_tokens). A drafter that throws is disabled, alone and in
// mixed trees, with one warning; decoding continues without it.
//
// Owns       the drafters, the tuner, the row budgets.
// Not here   which drafters there are (make_speculation.h); how the tuner chooses (speculation/tuner.h).
// Threading  engine thread only.
//
//   Speculation speculation(std::make_unique<drafter::SuffixDrafter>(…), parse_strategy("8_4_16"),
//                           model.config().vocabulary);
//   Engine engine(model, options, stop_text, tap, &speculation);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "drafter/drafter.h"
#include "drafter/mixed_drafter.h"
#include "rollout/hidden_state_log.h"
#include "rollout/sequence.h"
#include "rollout/step_plan.h"
#include "rollout/target_states.h"
#include "speculation/row_budget.h"
#include "speculation/tuner.h"

namespace tlt::rollout {

// Counters of one drafter, or summed over several, since construction.
struct DraftStats {
  static constexpr size_t kLevels = 16;

  int64_t steps = 0;            // engine steps with its draft trees
  int64_t trees = 0;            // verified
  int64_t drafted_tokens = 0;   // nodes of those trees
  int64_t accepted_tokens = 0;  // acceptance length = 1 + accepted_tokens / trees
  // drafted_at[i]: trees at least i + 1 deep; accepted_at[i]: of them, accepted to depth i + 1.
  std::array<int64_t, kLevels> drafted_at = {};
  std::array<int64_t, kLevels> accepted_at = {};
  // Nodes of mixed trees that this drafter proposed, alone or with others; the accepted ones.
  int64_t mixed_drafted = 0;
  int64_t mixed_accepted = 0;
  double draft_seconds = 0;
  int64_t failed = 0;  // 1: it threw and is disabled

  void add(const DraftStats& other);
  // Calls v(counter) for each.
  void visit(auto&& v) {
    v(steps), v(trees), v(drafted_tokens), v(accepted_tokens);
    for (int64_t& trees_at : drafted_at) v(trees_at);
    for (int64_t& trees_at : accepted_at) v(trees_at);
    v(mixed_drafted), v(mixed_accepted), v(draft_seconds), v(failed);
  }
};

struct SpeculationStats : DraftStats {
  int64_t decode_steps = 0;    // engine steps that decoded, speculative or not
  double seconds = 0;          // time of speculation without the target's forward passes
  double forward_seconds = 0;  // part of seconds: forward passes of draft models
};

class Speculation {
 public:
  // This drafter with this strategy in every step. vocabulary: the target's; draft tokens are
  // checked against it.
  Speculation(std::unique_ptr<drafter::Drafter> drafter, drafter::Strategy strategy,
              int64_t vocabulary);

  // All drafters in one mixed tree, with this strategy, in every step.
  Speculation(std::vector<std::unique_ptr<drafter::Drafter>> drafters, drafter::Strategy strategy,
              int64_t vocabulary);

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
  Speculation(std::vector<std::unique_ptr<drafter::Drafter>> drafters, Adaptive adaptive,
              int64_t vocabulary);
  ~Speculation();

  // The target's layers that the drafters read. InputError when two drafters read different ones.
  Layers layers() const;

  // Sets the draft of every running sequence: a tree if it decodes, else none. Begins the step.
  void propose(std::span<const std::unique_ptr<Sequence>> running);

  // Passes rows of a prompt to the drafters (Drafter::read_prompt).
  void read_prompt(uint32_t prompt_id, int32_t position, const TargetStates& states,
                   std::span<const int32_t> tokens);
  // Passes states of a resumed prefix: tokens first … first + count - 1 of sequence.begun were
  // sampled from the states of rows row, row + 1 …
  void read_resumed(const Sequence& sequence, int32_t first, int32_t count, int32_t row,
                    const TargetStates& states);
  // A draw has been committed. tokens: how many of drawn.tokens the response got. states: of the
  // step's forward pass.
  void committed(const SampleRequest& draw, const SampleResult& drawn, size_t tokens,
                 const TargetStates& states);
  // Ends the step after all its draws were committed. has_prompt_rows: it did more than decode.
  void end_step(bool has_prompt_rows);

  // The response is finished, or was cancelled.
  void ended(const Response& response);

  // Tuner::spare_capacity(); 0 without a tuner.
  int64_t spare_capacity(int64_t sequences);

  // The first sequence is submitted to an idle engine.
  void begin_rollout();
  // The policy has been updated.
  void new_weights();

  // Verifies draft trees by FastRL's rule; to be set before the engine is made.
  void set_target_only(const ops::TargetOnlyRule& rule) { target_only_ = rule; }
  const std::optional<ops::TargetOnlyRule>& target_only() const { return target_only_; }

  // REQUIRES: no tuner. Holds from the next step on.
  void set_strategy(const drafter::Strategy& strategy) { arm_.strategy = strategy; }
  // Arm and load of the latest step.
  const speculation::Arm& arm() const { return arm_; }
  const speculation::Load& load() const { return load_; }

  SpeculationStats stats() const;  // of all drafters
  const DraftStats& stats_of(size_t drafter) const { return members_[drafter].stats; }
  std::vector<std::string> kinds() const;
  // Null: a fixed strategy.
  const speculation::Tuner* tuner() const { return tuner_.get(); }
  int64_t memory_bytes() const;

  // The learned state as JSON; "" without a tuner. restore() ignores the state of other drafters or
  // options. InputError names `place` when the text is not such a state.
  std::string save() const;
  void restore(const std::string& json, const std::string& place);

 private:
  struct Member {
    std::unique_ptr<drafter::Drafter> drafter;
    speculation::RowBudget budget;
    DraftStats stats;
  };

  template <class Call>
  void guard(Member& member, const Call& call);
  template <class Call>
  void for_each_drafter(const Call& call);
  void deliver_states();
  void add(std::unique_ptr<drafter::Drafter> drafter);
  void add_mixed();
  void make_tuner();
  void measure_if_due();
  bool competes(const Member& member) const;
  Member* choose();
  bool is_exploration() const { return adaptive_ && tuner_ && tuner_->is_exploration(); }
  drafter::SharedUniforms uniforms_of(const Sequence& sequence, int64_t tokens);
  void limit_exploration();
  bool was_requested(const Sequence& sequence) const;
  void check(const drafter::DraftRequest& request);
  void propose_trees(std::span<const std::unique_ptr<Sequence>> running);
  void prune_trees();
  void learn(bool has_prompt_rows);
  void update_speed(double seconds);
  void count(const drafter::VerifiedTree& tree, size_t tokens);

  std::vector<Member> members_;
  bool reads_states_ = false;  // any member does
  HiddenStateLog log_;
  drafter::MixedDrafter* mixed_ = nullptr;  // the last member's drafter, or null
  std::optional<ops::TargetOnlyRule> target_only_;
  std::optional<Adaptive> adaptive_;
  std::unique_ptr<speculation::Tuner> tuner_;
  double unmeasured_seconds_ = 0;  // decoding time before costs were measured
  bool has_new_failure_ = false;   // a drafter threw that the tuner still has
  speculation::Arm arm_;           // of the current step
  Member* drafting_ = nullptr;     // drafter of the current step, or null
  const int64_t vocabulary_;
  int64_t decode_steps_ = 0;
  double tokens_per_second_ = 0;  // moving average
  double cost_factor_ = 1;        // moving average of measured seconds / cost table's seconds
  // Moving averages of the seconds that learning from a step takes: non-speculative, speculative.
  std::array<double, 2> learning_seconds_ = {};
  double seconds_ = 0;  // SpeculationStats::seconds
  const Clock& clock_;

  // State of the current step.
  speculation::Load load_{0};  // as planned; batch_ counts the sequences that actually decoded
  Stopwatch step_{clock_};
  bool has_commits_ = false;
  Stopwatch commits_{clock_};  // since the step's first commit
  int64_t batch_ = 0;          // sequences that decoded
  int64_t tokens_ = 0;
  double draft_seconds_ = 0;
  std::vector<drafter::VerifiedTree> verified_;
  // Scratch.
  std::vector<double> uniforms_;  // of all requests
  std::vector<drafter::DraftRequest> requests_;
  std::vector<const drafter::DraftTree*> trees_;
  std::vector<int32_t> keep_;
  std::vector<int32_t> rows_;  // rows of the forward pass that tokens were sampled from
};

}  // namespace tlt::rollout

// Speculation: the guesses for each engine step: chooses the drafter and the size of the trees,
// asks for them, and tells drafters and tuner what became of them.
//
// The target decides every token, so nothing here changes one
// (tests/laws/speculation_never_changes_tokens). A drafter that throws is not asked again, alone or
// in a mixed tree: one warning, and decoding goes on without it.
//
// Owns       the drafters, the tuner, the row budgets.
// Not here   which drafters there are (make_speculation.h); how the tuner chooses (spec/tuner.h).
// Threading  engine thread only.
//
//   Speculation speculation(std::make_unique<spec::SuffixDrafter>(…), parse_strategy("8_4_16"),
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
#include "rollout/sequence.h"
#include "rollout/state_log.h"
#include "rollout/step_plan.h"
#include "rollout/target_states.h"
#include "spec/drafter.h"
#include "spec/mixed_drafter.h"
#include "spec/row_budget.h"
#include "spec/tuner.h"

namespace tlt::rollout {

// Of one drafter, or of several; counted since the speculation was made.
struct DraftStats {
  static constexpr size_t kLevels = 16;

  int64_t steps = 0;            // of the engine, with its guesses
  int64_t trees = 0;            // verified
  int64_t drafted_tokens = 0;   // nodes of those trees
  int64_t accepted_tokens = 0;  // of them; acceptance length = 1 + accepted / trees
  // Trees that guessed so many tokens ahead (1 first), and those that were right so far.
  std::array<int64_t, kLevels> drafted_at = {};
  std::array<int64_t, kLevels> accepted_at = {};
  // Of the mixed kind's trees: nodes that this drafter guessed, alone or with others, and the right
  // ones of them.
  int64_t mixed_drafted = 0;
  int64_t mixed_accepted = 0;
  double draft_seconds = 0;
  bool failed = false;  // it threw

  void add(const DraftStats& other);
};

struct SpeculationStats : DraftStats {
  int64_t decode_steps = 0;  // of the engine, with or without guesses
  double seconds = 0;        // of all that speculation does beside the target's forward passes …
  double forward_seconds = 0;  // … and of it, the passes of the drafters' networks
};

class Speculation {
 public:
  // Always this drafter with this strategy. vocabulary: the target's, that drafts are checked
  // against.
  Speculation(std::unique_ptr<spec::Drafter> drafter, spec::Strategy strategy, int64_t vocabulary);

  // Always all of them, in one tree.
  Speculation(std::vector<std::unique_ptr<spec::Drafter>> drafters, spec::Strategy strategy,
              int64_t vocabulary);

  static constexpr double kMeasureAfterSeconds = 0.5;

  // For each step the drafter and the strategy, or none, that steps so far say is best.
  // REQUIRES: costs or measure_costs.
  struct Adaptive {
    spec::SpeculationOptions options;
    // Who competes: drafters and "mixed", which is all of them in one tree. Empty: each alone.
    std::vector<std::string> kinds = {};
    // Without costs they are measured, by this function, once decoding has taken
    // kMeasureAfterSeconds: what is over before would not earn the measuring back. Until then there
    // are no drafts.
    std::optional<spec::CostTable> costs = {};
    std::function<spec::CostTable()> measure_costs = {};
    int64_t max_rows = 0;  // of a forward pass
    uint64_t seed = 0;
    const Clock* clock = &steady_clock();  // that steps are timed with
  };
  Speculation(std::vector<std::unique_ptr<spec::Drafter>> drafters, Adaptive adaptive,
              int64_t vocabulary);
  ~Speculation();

  // What the drafters want to see of the target. InputError when two want different layers.
  Layers layers() const;

  // Sets the draft of every running sequence: a tree where it decodes, none elsewhere. The step
  // begins with it.
  void propose(std::span<const std::unique_ptr<Sequence>> running);

  // Rows of a prompt went through the target (Drafter::read_prompt).
  void read_prompt(uint32_t prompt_id, int32_t position, const TargetStates& states,
                   std::span<const int32_t> tokens);
  // Tokens first … first + count - 1 of sequence.begun were drawn from the states of rows row, row
  // + 1 …
  void read_begun(const Sequence& sequence, int32_t first, int32_t count, int32_t row,
                  const TargetStates& states);
  // A draw has been committed; `tokens`: how many of drawn.tokens the response got. states: of
  // the step's forward pass.
  void committed(const Draw& draw, const Drawn& drawn, size_t tokens, const TargetStates& states);
  // The step's draws have been committed. has_prompt_rows: it did more than decode.
  void end_step(bool has_prompt_rows);

  // The response is finished, or was cancelled.
  void ended(const Response& response);

  // Tuner::room_beside(); 0 without a tuner.
  int64_t room_beside(int64_t sequences);

  // The first sequence is submitted to an idle engine.
  void begin_rollout();
  // The policy has been updated.
  void new_weights();

  // FastRL's way to accept guesses; before the engine is made.
  void set_target_only(const ops::TargetOnlyRule& rule) { target_only_ = rule; }
  const std::optional<ops::TargetOnlyRule>& target_only() const { return target_only_; }

  // Without a tuner, from the next step on.
  void set_strategy(const spec::Strategy& strategy) { arm_.strategy = strategy; }
  // Of the step that was proposed for last.
  const spec::Arm& arm() const { return arm_; }
  const spec::Load& load() const { return load_; }

  SpeculationStats stats() const;  // of all drafters
  const DraftStats& stats_of(size_t drafter) const { return members_[drafter].stats; }
  std::vector<std::string> kinds() const;
  // Null: a fixed strategy.
  const spec::Tuner* tuner() const { return tuner_.get(); }
  int64_t memory_bytes() const;

  // What was learned; "" without a tuner. restore() leaves all as it is when the text is that of
  // other drafters or options. InputError names the place when it is none at all.
  std::string save() const;
  void restore(const std::string& json, const std::string& place);

 private:
  struct Member {
    std::unique_ptr<spec::Drafter> drafter;
    spec::RowBudget budget;
    DraftStats stats;
  };

  template <class Call>
  void guard(Member& member, const Call& call);
  template <class Call>
  void tell(const Call& call);
  void tell_states();
  void add(std::unique_ptr<spec::Drafter> drafter);
  void add_mixed();
  void make_tuner();
  void measure_if_due();
  bool competes(const Member& member) const;
  Member* choose();
  bool is_try() const { return adaptive_ && tuner_ && tuner_->is_try(); }
  spec::KnownDraws draws_of(const Sequence& sequence, int64_t tokens);
  void keep_few();
  bool was_asked_for(const Sequence& sequence) const;
  void check(const spec::DraftRequest& request);
  void propose_trees(std::span<const std::unique_ptr<Sequence>> running);
  void cut();
  void learn(bool has_prompt_rows);
  void learn_pace(double seconds);
  void count(const spec::VerifiedTree& tree, size_t tokens);

  std::vector<Member> members_;
  bool reads_states_ = false;  // a member does
  StateLog log_;
  spec::MixedDrafter* mixed_ = nullptr;  // the last member's drafter, or null
  std::optional<ops::TargetOnlyRule> target_only_;
  std::optional<Adaptive> adaptive_;
  std::unique_ptr<spec::Tuner> tuner_;
  double unmeasured_seconds_ = 0;  // of decoding before costs were measured
  bool has_new_failure_ = false;  // the tuner still counts on a drafter that threw
  spec::Arm arm_;                 // of the step
  Member* drafting_ = nullptr;    // of the step; null: nobody
  const int64_t vocabulary_;
  int64_t decode_steps_ = 0;
  double tokens_per_second_ = 0;  // of the latest steps
  double cost_factor_ = 1;        // the seconds of the latest steps, by those of the cost table
  // Of the latest steps, what learning from them took: without guesses, and with.
  std::array<double, 2> learning_seconds_ = {};
  double seconds_ = 0;  // spent here
  const Clock& clock_;

  // Of the step.
  spec::Load load_{0};  // as planned; batch_ are those that went through with it
  Stopwatch step_{clock_};
  bool has_commits_ = false;
  Stopwatch commits_{clock_};  // since the first one
  int64_t batch_ = 0;          // sequences that decoded
  int64_t tokens_ = 0;
  double draft_seconds_ = 0;
  std::vector<spec::VerifiedTree> verified_;
  // Scratch.
  std::vector<double> numbers_;  // of all requests
  std::vector<spec::DraftRequest> requests_;
  std::vector<const spec::DraftTree*> trees_;
  std::vector<int32_t> keep_;
  std::vector<int32_t> rows_;  // of the forward pass, that tokens were drawn from
};

}  // namespace tlt::rollout

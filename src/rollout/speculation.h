// Speculation: the draft trees of each engine step. Lets the policy choose a drafter and the size
// of the trees, requests them, and reports the outcome of verification to drafters and policy.
//
// The target decides every token, so speculation changes none
// (tests/invariants/speculation_never_changes_tokens).
//
// Owns       the drafters (drafter_set.h), the policy (speculation_policy.h), the requests and the
//            outcome of the current step (draft_step.h).
// Not here   which drafters there are (make_speculation.h).
// Threading  engine thread only.
//
//   Speculation speculation(std::make_unique<drafter::SuffixDrafter>(…), parse_strategy("8_4_16"),
//                           model.config().vocabulary);
//   Engine engine(model, options, stop_string, observer, &speculation);
//
// The engine calls, in each step:
//
//   speculation.propose(running);
//   … plan, forward pass, sampling, commit …
//   speculation.finish(plan, states);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "rollout/draft_step.h"
#include "rollout/drafter_set.h"
#include "rollout/speculation_policy.h"

namespace tlt::rollout {

struct SpeculationStats : DraftStats {
  int64_t decode_steps = 0;    // engine steps that decoded, speculative or not
  double seconds = 0;          // time of speculation without the target's forward passes
  double forward_seconds = 0;  // part of seconds: forward passes of draft models
  // Of engine steps that decoded: their time, drafting included, and what their tokens would have
  // taken without speculation (an estimate). 0: the policy is fixed.
  double step_seconds = 0, plain_seconds = 0;
};

class Speculation {
 public:
  using Adaptive = SpeculationPolicy::Adaptive;

  // This drafter with this strategy in every step. vocabulary: the target's; draft tokens are
  // checked against it.
  Speculation(std::unique_ptr<drafter::Drafter> drafter, drafter::Strategy strategy,
              int64_t vocabulary);

  // All drafters in one mixed tree, with this strategy, in every step.
  Speculation(std::vector<std::unique_ptr<drafter::Drafter>> drafters, drafter::Strategy strategy,
              int64_t vocabulary);

  // The tuner chooses a drafter and a strategy, or `off`, for each step.
  Speculation(std::vector<std::unique_ptr<drafter::Drafter>> drafters, Adaptive adaptive,
              int64_t vocabulary);

  // The target's layers that the drafters read. InputError when two drafters read different ones.
  Layers layers() const { return drafters_.layers(); }

  // Sets the draft of every running sequence: a tree if it decodes, else none. Begins the step.
  void propose(std::span<const std::unique_ptr<Sequence>> running);
  // Ends the step: learns from the committed plan. states: of its forward pass.
  void finish(const StepPlan& plan, const TargetStates& states);
  // The response is finished, or was cancelled.
  void ended(const Response& response);

  // The policy model has been updated.
  void new_weights();

  // Tuner::spare_capacity(); 0 without a tuner.
  int64_t spare_capacity(int64_t sequences);

  // Verifies draft trees by FastRL's rule; to be set before the engine is made.
  void set_target_only(const ops::TargetOnlyRule& rule) { target_only_ = rule; }
  const std::optional<ops::TargetOnlyRule>& target_only() const { return target_only_; }

  // REQUIRES: no tuner. Holds from the next step on.
  void set_strategy(const drafter::Strategy& strategy) { policy_.set_strategy(strategy); }
  // Arm and load of the latest step.
  const speculation::Arm& arm() const { return policy_.arm(); }
  const speculation::Load& load() const { return step_.load(); }

  SpeculationStats stats() const;  // of all drafters
  const DraftStats& stats_of(size_t drafter) const { return drafters_.members()[drafter].stats; }
  std::vector<std::string> kinds() const;
  // Of the measured costs; nullopt: none are measured.
  std::optional<double> ridge() const { return policy_.ridge(); }
  // Null: a fixed strategy.
  const speculation::Tuner* tuner() const { return policy_.tuner(); }
  int64_t memory_bytes() const { return drafters_.memory_bytes(); }

  // The learned state as JSON; "" without a tuner. restore() ignores the state of other drafters or
  // options. InputError names `place` when the text is not such a state.
  std::string save() const { return policy_.save(); }
  void restore(const std::string& json, const std::string& place) { policy_.restore(json, place); }

 private:
  void draft(std::span<const std::unique_ptr<Sequence>> running);

  DrafterSet drafters_;
  SpeculationPolicy policy_;
  DraftStep step_;
  DrafterSet::Member* drafting_ = nullptr;  // drafter of the current step, or null
  double draft_seconds_ = 0;                // of the current step
  std::optional<ops::TargetOnlyRule> target_only_;
  const Clock& clock_;
  Stopwatch watch_{clock_};  // since the current step began
  int64_t decode_steps_ = 0;
  double seconds_ = 0;  // as in SpeculationStats
  double step_seconds_ = 0, plain_seconds_ = 0;
};

}  // namespace tlt::rollout

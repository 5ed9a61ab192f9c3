// DraftStep: the drafting of one engine step: the load, the requests for draft trees, and what
// became of the trees.
//
// Borrows    the sequences, from begin() to the end of the step.
// Threading  engine thread only; no locks; no allocation once warm.
//
//   step.begin(running);                              // counts the load, clears the draft trees
//   step.request(running, strategy, /*shares_uniforms=*/true);
//   … a drafter fills the trees of step.requests(), the engine verifies them …
//   step.collect(plan, /*drafted=*/true);
//   tuner.record(arm, step.outcome());
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "drafter/drafter.h"
#include "rollout/sequence.h"
#include "rollout/step_plan.h"
#include "speculation/tuning_policy.h"

namespace tlt::rollout {

class DraftStep {
 public:
  void begin(std::span<const std::unique_ptr<Sequence>> running);
  // The sequences that decode, as planned.
  const speculation::Load& load() const { return load_; }

  // Requests a tree for each sequence that decodes. shares_uniforms: the drafter gets the uniforms
  // that the target will sample with.
  void request(std::span<const std::unique_ptr<Sequence>> running,
               const drafter::Strategy& strategy, bool shares_uniforms);
  // Keeps the requests for the `count` shortest responses.
  void keep_shortest(int64_t count);
  std::span<const drafter::DraftRequest> requests() const { return requests_; }
  // Whether the step drafts for the sequence: for all, unless keep_shortest() dropped it.
  bool includes(drafter::SequenceId id) const;

  // Adds up the committed plan. drafted: a drafter filled the requested trees.
  void collect(const StepPlan& plan, bool drafted);
  // What collect() found; times are the caller's. The trees are valid until the sequences change.
  speculation::StepOutcome outcome() const;

 private:
  drafter::SharedUniforms uniforms_of(const Sequence& sequence, int64_t tokens);

  speculation::Load load_{0};
  std::vector<drafter::DraftRequest> requests_;
  bool keeps_shortest_ = false;
  std::vector<double> uniforms_;  // of all requests
  int64_t batch_ = 0;             // sequences that actually decoded
  int64_t tokens_ = 0;            // that they got
  bool has_prompt_rows_ = false;
  std::vector<drafter::VerifiedTree> verified_;
};

}  // namespace tlt::rollout

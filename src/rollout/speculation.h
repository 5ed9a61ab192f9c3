// Speculation: the guesses for each engine step: asks the drafter for trees, tells it what became
// of them.
//
// The target decides every token, so nothing here changes one
// (tests/laws/speculation_never_changes_tokens). A drafter that throws is not asked again: one
// warning, and decoding goes on without.
//
// Owns       the drafter.
// Threading  engine thread only.
//
//   Speculation speculation(std::make_unique<spec::SuffixDrafter>(…), parse_strategy("8_4_16"),
//                           model.config().vocabulary);
//   Engine engine(model, options, stop_text, tap, &speculation);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "rollout/sequence.h"
#include "rollout/step_plan.h"
#include "spec/drafter.h"

namespace tlt::rollout {

// Counted since it was made.
struct SpeculationStats {
  int64_t trees = 0;            // verified
  int64_t drafted_tokens = 0;   // nodes of those trees
  int64_t accepted_tokens = 0;  // of them; acceptance length = 1 + accepted / trees
  double draft_seconds = 0;
  bool failed = false;  // the drafter threw
};

class Speculation {
 public:
  // vocabulary: the target's, that drafts are checked against.
  Speculation(std::unique_ptr<spec::Drafter> drafter, spec::Strategy strategy, int64_t vocabulary);
  ~Speculation();

  // Sets the draft of every running sequence: a tree where it decodes, none elsewhere.
  void propose(std::span<const std::unique_ptr<Sequence>> running);

  // Rows of a prompt went through the target (Drafter::read_prompt).
  void read_prompt(uint32_t prompt_id, int32_t position, const at::Tensor& hidden,
                   std::span<const int32_t> tokens);
  // A draw has been committed; `tokens`: how many of drawn.tokens the response got. hidden [T, D]:
  // of the step's forward pass.
  void committed(const Draw& draw, const Drawn& drawn, size_t tokens, const at::Tensor& hidden);
  // The response is finished, or was cancelled, after it had a token.
  void ended(spec::SequenceId id);

  // From the next step on.
  void set_strategy(const spec::Strategy& strategy) { strategy_ = strategy; }
  const spec::Strategy& strategy() const { return strategy_; }
  const SpeculationStats& stats() const { return stats_; }

 private:
  template <class Call>
  void guard(const Call& call);
  void check(const spec::DraftRequest& request);

  std::unique_ptr<spec::Drafter> drafter_;
  spec::Strategy strategy_;
  const int64_t vocabulary_;
  SpeculationStats stats_;
  std::vector<spec::DraftRequest> requests_;
  std::vector<int32_t> committed_;
  std::vector<int32_t> rows_;  // of the forward pass, that they were drawn from
};

}  // namespace tlt::rollout

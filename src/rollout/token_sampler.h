// TokenSampler: samples tokens from hidden states: LM head, sampling rule, and one uniform per
// token that belongs to its position.
//
// Owns       buffers for the logits of a bounded number of rows; more rows go through them in
//            several passes.
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "model/policy_model.h"
#include "rollout/step_plan.h"

namespace tlt::rollout {

class TokenSampler {
 public:
  // Borrows the model. `max_rows`: tokens usually chosen at once.
  TokenSampler(const model::PolicyModel& model, int64_t max_rows);

  // Result i has the tokens of draws[i], chosen from hidden [T, D]; valid until the next call.
  //
  // A tree is walked from its root: the token is chosen at each node with the number that belongs
  // to its place, as plain decoding would, and the walk goes on while the tree has guessed it. So
  // the tokens do not depend on the tree, and a child is accepted as often as rejection sampling
  // would accept one (docs/paper_map.md, note 8).
  std::span<const Drawn> sample(const at::Tensor& hidden, std::span<const Draw> draws);

  // Trees are walked by FastRL's rule instead: other tokens than without them, though as
  // likely where both thresholds are 1.
  void set_target_only(const ops::TargetOnlyRule& rule) { target_only_ = rule; }

 private:
  // A walk down the tree of a draw.
  struct Walk {
    size_t draw = 0;
    int64_t first_logits = 0;  // its root's row
    int32_t node = spec::DraftTree::kRoot;
  };

  void grow(int64_t rows);
  // The rows rows_ of hidden [T, D].
  at::Tensor gather(const at::Tensor& hidden);
  // Gives the walks all their tokens.
  void sample_some(const at::Tensor& hidden, std::span<const Draw> draws);
  // By FastRL's rule, from the children of the walks' nodes.
  void ask_for_guesses(std::span<const Draw> draws);
  // Chooses a token at the node of every walk; those that the tree has not guessed end.
  void advance(std::span<const Draw> draws, const at::Tensor& logits);

  const model::PolicyModel& model_;
  std::optional<ops::TargetOnlyRule> target_only_;
  at::Tensor hidden_;  // [R, D]
  at::Tensor logits_;  // [R, V] f32
  std::vector<int64_t> rows_;
  std::vector<ops::SampleRow> asked_;
  std::vector<int32_t> guesses_;  // of all walks
  std::vector<ops::Sampled> answers_;
  std::vector<Walk> walks_;
  // By draw; the lists keep their memory.
  std::vector<std::vector<ops::Sampled>> tokens_;
  std::vector<std::vector<int32_t>> paths_;
  std::vector<Drawn> drawn_;
};

}  // namespace tlt::rollout

// TokenSampler: samples tokens from hidden states: LM head, sampling rule, and one uniform per
// token position.
//
// Owns       buffers for the logits of a bounded number of rows; more rows are processed in several
//            passes.
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "model/policy_model.h"
#include "rollout/model_runner.h"
#include "rollout/step_plan.h"

namespace tlt::rollout {

class TokenSampler {
 public:
  // Borrows the model, and the runner whose LM head it uses; null: the model's. max_rows: the usual
  // number of tokens sampled at once.
  TokenSampler(const model::PolicyModel& model, int64_t max_rows, ModelRunner* runner = nullptr);

  // Result i has the tokens of requests[i], sampled from hidden [T, D]; valid until the next call.
  //
  // A tree is walked from its root: at each node the token is sampled with its position's uniform,
  // as in non-speculative decoding, and the walk continues while the tree has that token as a
  // child. So the tokens do not depend on the tree, and a child is accepted as often as rejection
  // sampling would accept it (docs/paper_map.md, note 8).
  std::span<const SampleResult> sample(const at::Tensor& hidden,
                                       std::span<const SampleRequest> requests);

  // Verifies trees by FastRL's rule instead: the same distribution where both thresholds are 1, but
  // not the same tokens.
  void set_target_only(const ops::TargetOnlyRule& rule) { target_only_ = rule; }

 private:
  // A walk down the tree of one request.
  struct Walk {
    size_t request = 0;
    int64_t first_logits = 0;  // row of the root's logits
    int32_t node = drafter::DraftTree::kRoot;
  };

  void grow(int64_t rows);
  // Of the token `more` after the sequence's.
  ops::SampleRow row_to_sample(const Sequence& sequence, int64_t row, size_t more) const;
  // The rows rows_ of hidden [T, D].
  at::Tensor gather(const at::Tensor& hidden);
  // The LM head.
  void compute_logits(const at::Tensor& rows, at::Tensor& logits) const;
  // Runs all walks to their end.
  void sample_some(const at::Tensor& hidden, std::span<const SampleRequest> requests);
  // FastRL's rule: passes the children of the walks' nodes as draft tokens.
  void add_draft_tokens(std::span<const SampleRequest> requests);
  // Samples a token at the node of every walk; a walk ends when the tree does not have the token.
  // host: RowsToSample::host.
  void advance(std::span<const SampleRequest> requests, const at::Tensor& logits, at::Tensor& host);

  // On a device with kernels of its own, where they cover the requests' rules: all rows of a pass
  // are sampled at once, walks or not, and all passes wait for the device once.
  bool samples_on_device(std::span<const SampleRequest> requests);
  void reserve_sampled(std::span<const SampleRequest> requests);
  void list_all_rows(std::span<const SampleRequest> requests);
  // `first`: number of rows of the passes before.
  void launch(const at::Tensor& hidden, std::span<const SampleRequest> requests, int64_t first);
  void finish(std::span<const SampleRequest> requests, int64_t rows);

  const model::PolicyModel& model_;
  ModelRunner* const runner_;  // or null
  std::optional<ops::TargetOnlyRule> target_only_;
  at::Tensor hidden_;             // [R, D]
  at::Tensor logits_;             // [R, V] f32
  at::Tensor sampled_on_device_;  // [rows of all passes, 2]
  std::vector<int64_t> rows_;
  std::vector<ops::SampleRow> sample_rows_;
  std::vector<int32_t> draft_tokens_;  // of all walks
  std::vector<ops::Sampled> sampled_;
  std::vector<Walk> walks_;
  // Indexed by request; the inner vectors keep their memory.
  std::vector<std::vector<ops::Sampled>> tokens_;
  std::vector<std::vector<int32_t>> paths_;
  std::vector<std::vector<std::vector<ops::Sampled>>> tops_;  // empty where none are requested
  std::vector<SampleResult> results_;
};

}  // namespace tlt::rollout

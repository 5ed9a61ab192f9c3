// Eagle3Network: the network of an EAGLE-3 draft model (docs/references.md). It reads auxiliary
// hidden states of three layers of the target, and has an LM head of its own over the draft
// vocabulary.
//
//   g_t     = FC [h_t^a; h_t^b; h_t^c]                inputs of the target's layers a, b, c
//   a_t     = g_t + Attention([Norm E(x_{t+1}); Norm g_t])      q, k, v read 2 D
//   g'_{t+1} = a_t + MLP(Norm a_t)                    replaces g in further drafting
//   logits of x_{t+2} = Head Norm g'_{t+1}            [R]: row r is token head_tokens()[r]
//
// Owns       its layer, FC, norms and LM head.
// Not here   the EAGLE-1/2 network (draft_eagle.h).
// Threading  engine thread only.
//
//   Eagle3Network network(target, Eagle3Config::make(target.config(), /*head_rows=*/32000));
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "drafter/eagle/draft_network.h"
#include "drafter/files/draft_eagle3_config.h"

namespace tlt::drafter {

class Eagle3Network final : public DraftNetwork {
 public:
  // Zero weights; the draft vocabulary is the first R tokens. Throws InputError if the sizes do not
  // fit the target. REQUIRES: `target` outlives this.
  Eagle3Network(const model::PolicyModel& target, const Eagle3Config& config);

  std::string_view algorithm() const override { return "eagle3"; }
  const Eagle3Config& eagle3_config() const { return eagle3_config_; }
  const std::vector<int64_t>& auxiliary_layers() const override { return eagle3_config_.layers; }
  const std::vector<int32_t>& head_tokens() const override { return head_tokens_; }

  // Random weights, except for the LM head, whose rows are the target's.
  void initialize(uint64_t seed) override;
  std::unique_ptr<DraftNetwork> copy() const override;
  // Sets the draft vocabulary. Throws InputError unless it is R ascending tokens.
  void set_head_tokens(std::vector<int32_t> tokens);

  void head(const at::Tensor& read, at::Tensor& out) const override;
  void head_backward(const at::Tensor& read, const at::Tensor& d_logits, at::Tensor& d_read,
                     model::Gradients& gradients) const override;

 private:
  const at::Tensor& project(const at::Tensor& states, model::RowBuffer& out) const override;
  void project_backward(const at::Tensor& states, const at::Tensor& d_features,
                        model::Gradients& gradients) const override;
  void enter(const ops::Batch& batch, const at::Tensor& features, DraftPass& pass) const override;
  const at::Tensor& input(DraftPass& pass) const override;
  void enter_backward(DraftPass& pass, DraftScratch& scratch, at::Tensor& d_stream,
                      model::Gradients& gradients, at::Tensor* d_features) const override;
  const at::Tensor& read(const at::Tensor& next, model::RowBuffer& out) const override;
  void read_backward(const at::Tensor& d_read, const at::Tensor& next, at::Tensor& d_next,
                     model::Gradients& gradients) const override;

  const Eagle3Config eagle3_config_;
  ops::Weight fc_;                                        // [D, 3 D]
  at::Tensor embedding_norm_, feature_norm_, last_norm_;  // [D]
  ops::Weight head_;                                      // [R, D]
  std::vector<int32_t> head_tokens_;
  int64_t fc_index_ = 0, embedding_norm_index_ = 0, feature_norm_index_ = 0, last_norm_index_ = 0,
          head_index_ = 0;  // into parameters_
};

}  // namespace tlt::drafter

// EagleNetwork: the network of an EAGLE-1 or EAGLE-2 draft model, which predicts the target's next
// final hidden states (EAGLE, docs/references.md).
//
//   z_t     = FC [E(x_{t+1}); h_t]            the embedding first; no bias
//   a_t     = z_t + Attention(z_t)            no norm before it
//   h'_{t+1} = a_t + MLP(RMSNorm(a_t))        no norm after it: approximates the normed h_{t+1}
//
// The target's LM head computes the logits of x_{t+2} from h'_{t+1}.
//
// Threading  engine thread only.
//
//   EagleNetwork network(target, EagleNetwork::config_for(target.config()));
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "drafter/eagle/draft_network.h"

namespace tlt::drafter {

class EagleNetwork : public DraftNetwork {
 public:
  // The target's sizes and family, with one layer.
  static model::ModelConfig config_for(const model::ModelConfig& target) {
    return config_for(target, target.family);
  }
  // The same with a layer of another family. For a Qwen3 target a Qwen3 layer is the natural choice
  // (initialize_from_target() requires it), but few releases of SGLang have Qwen3ForCausalLMEagle;
  // a Llama layer can be served by all of them.
  static model::ModelConfig config_for(const model::ModelConfig& target, model::Family family);

  // Zero weights: fill them with initialize() or draft_folder.h. Throws InputError if hidden size
  // or vocabulary differ from the target's. REQUIRES: `target` outlives this.
  EagleNetwork(const model::PolicyModel& target, const model::ModelConfig& config);

  std::string_view algorithm() const override { return "eagle"; }
  void initialize(uint64_t seed) override;
  std::unique_ptr<DraftNetwork> copy() const override;
  // Copies the target's last layer; FC passes h_t and a little of the embedding. Throws InputError
  // if the layer's shape or family differs from the target's.
  void initialize_from_target(uint64_t seed);

  void head(const at::Tensor& read, at::Tensor& out) const override;
  // The LM head is the target's and gets no gradient.
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

  ops::Weight fc_;        // [D, 2 D]
  int64_t fc_index_ = 0;  // into parameters_
};

}  // namespace tlt::drafter

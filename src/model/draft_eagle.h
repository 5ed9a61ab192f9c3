// EagleNetwork: the network of an EAGLE-1 or EAGLE-2 drafter: it continues the target's final
// hidden states (EAGLE, docs/references.md).
//
//   z_t     = FC [E(x_{t+1}); h_t]            the embedding first; no bias
//   a_t     = z_t + Attention(z_t)            no norm before it
//   h'_{t+1} = a_t + MLP(RMSNorm(a_t))        no norm after it: imitates the normed h_{t+1}
//
// The target's head turns h'_{t+1} into logits of x_{t+2}.
//
// Threading  engine thread only.
//
//   EagleNetwork network(target, EagleNetwork::config_for(target.config()));
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/draft_network.h"

namespace tlt::model {

class EagleNetwork : public DraftNetwork {
 public:
  // The target's own sizes and family, with one layer.
  static ModelConfig config_for(const ModelConfig& target) {
    return config_for(target, target.family);
  }
  // The same with a layer of another family. Qwen3's own is the layer it should have (the
  // target's, and initialize_from_target() wants it), but few releases of SGLang have a
  // Qwen3ForCausalLMEagle: for all others to serve the drafter, take a Llama layer.
  static ModelConfig config_for(const ModelConfig& target, Family family);

  // Zero weights: fill them by initialize() or draft_folder.h. InputError when the hidden size or
  // the vocabulary is not the target's. REQUIRES: `target` outlives this.
  EagleNetwork(const PolicyModel& target, const ModelConfig& config);

  std::string_view algorithm() const override { return "eagle"; }
  void initialize(uint64_t seed) override;
  std::unique_ptr<DraftNetwork> copy() const override;
  // The target's last layer; FC passes on h_t and a little of the embedding. InputError when the
  // layer's shape or family is another than the target's.
  void initialize_from_target(uint64_t seed);

  void head(const at::Tensor& read, at::Tensor& out) const override;
  // The head is the target's: no gradient of its own.
  void head_backward(const at::Tensor& read, const at::Tensor& d_logits, at::Tensor& d_read,
                     Gradients& gradients) const override;

 private:
  const at::Tensor& project(const at::Tensor& states, RowBuffer& out) const override;
  void project_backward(const at::Tensor& states, const at::Tensor& d_features,
                        Gradients& gradients) const override;
  void enter(const ops::Batch& batch, const at::Tensor& features, DraftPass& pass) const override;
  const at::Tensor& input(DraftPass& pass) const override;
  void enter_backward(DraftPass& pass, DraftScratch& scratch, at::Tensor& d_stream,
                      Gradients& gradients, at::Tensor* d_features) const override;
  const at::Tensor& read(const at::Tensor& next, RowBuffer& out) const override;
  void read_backward(const at::Tensor& d_read, const at::Tensor& next, at::Tensor& d_next,
                     Gradients& gradients) const override;

  ops::Weight fc_;        // [D, 2 D]
  int64_t fc_index_ = 0;  // into parameters_
};

}  // namespace tlt::model

// DraftNetwork: the network of an EAGLE drafter: one decoder layer that continues the target's
// final hidden states (PAPER 2.1).
//
//   z_t     = FC [E(x_{t+1}); h_t]            the embedding first; no bias
//   a_t     = z_t + Attention(z_t)            no norm before it
//   h'_{t+1} = a_t + MLP(RMSNorm(a_t))        no norm after it: imitates the normed h_{t+1}
//
// The target's head turns h'_{t+1} into logits of x_{t+2}. Row t stands at position t, counted from
// the first pair that is given: only differences of positions matter.
//
// Owns       its layer and FC, in the target's compute type.
// Borrows    the target: embedding and head are read there, never copied, never written.
// Not here   trees (spec/eagle_drafter.h), losses (spot/), files (draft_folder.h).
// Threading  engine thread only.
//
//   DraftNetwork network(target, DraftNetwork::config_for(target.config()));
//   const at::Tensor& next = network.forward(batch, hidden, cache, activations);   // [T, D]
//   target.logits(next, logits);                                                   // [T, V]
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kv/kv_cache.h"
#include "model/decoder_layer.h"
#include "model/policy_model.h"

namespace tlt::model {

class DraftActivations;
class DraftTape;

class DraftNetwork {
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
  DraftNetwork(const PolicyModel& target, const ModelConfig& config);
  DraftNetwork(const DraftNetwork&) = delete;  // parameters() points into the object
  DraftNetwork& operator=(const DraftNetwork&) = delete;

  const PolicyModel& target() const { return target_; }
  const ModelConfig& config() const { return config_; }
  const Device& device() const { return target_.device(); }
  at::ScalarType type() const { return target_.type(); }
  // "fc.weight", "layers.0.self_attn.q_proj.weight" …: what is trained and saved.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  kv::KvShape kv_shape() const;
  Gradients make_gradients() const;

  // Random weights.
  void initialize(uint64_t seed);
  // The target's last layer; FC passes on h_t and a little of the embedding. InputError when the
  // layer's shape or family is another than the target's.
  void initialize_from_target(uint64_t seed);

  // h' [T, D] from batch.tokens (x_{t+1}) and features [T, D] (h_t); a view into `activations`,
  // valid until its next use. The features may be that view of the call before.
  const at::Tensor& forward(const ops::Batch& batch, const at::Tensor& features, kv::KvCache& cache,
                            DraftActivations& activations) const;

  // Training: whole sequences from their first pair on (DraftTape::add_sequence), with everything
  // kept that backward needs.
  const at::Tensor& forward(DraftTape& tape, const at::Tensor& features) const;
  // Adds the gradients of all parameters, from d_out [T, D]. d_features [T, D] receives the
  // gradient of the features where given.
  void backward(DraftTape& tape, const at::Tensor& d_out, Gradients& gradients,
                at::Tensor* d_features = nullptr) const;

 private:
  // The rows FC reads, [T, 2 D]: the tokens' embeddings beside the features.
  void join(const ops::Batch& batch, const at::Tensor& features, at::Tensor& tokens,
            RowBuffer& joined) const;

  const PolicyModel& target_;
  ModelConfig config_;
  ops::Weight fc_;  // [D, 2 D]
  DecoderLayer layer_;
  mutable RopeTable rope_;
  int64_t fc_index_ = 0;  // into parameters_
  std::vector<Parameter> parameters_;
};

}  // namespace tlt::model

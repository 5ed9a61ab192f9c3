// Eagle3Network: the network of an EAGLE-3 drafter (PAPER 2.2): it is shown hidden states from
// three depths of the target, and has a head of its own over the tokens that are drafted often.
//
//   g_t     = FC [h_t^a; h_t^b; h_t^c]                what goes into the target's layers a, b, c
//   a_t     = g_t + Attention([Norm E(x_{t+1}); Norm g_t])      q, k, v read 2 D
//   g'_{t+1} = a_t + MLP(Norm a_t)                    takes g's place when drafting goes on
//   logits of x_{t+2} = Head Norm g'_{t+1}            [R]: row r is token target_tokens()[r]
//
// Owns       FC, layer, norms and head, in the target's compute type.
// Borrows    the target: its embedding.
// Not here   the EAGLE-1/2 network (draft_network.h); unrolled training, whose later passes attend
//            to the keys of earlier ones.
// Threading  engine thread only.
//
//   Eagle3Network network(target, Eagle3Config::make(target.config(), /*head_rows=*/32000));
//   network.project(captured, features);                                        // [T, D]
//   const at::Tensor& next = network.forward(batch, features, cache, activations);   // [T, D]
//   network.logits(next, activations, logits);                                  // [T, R]
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kv/kv_cache.h"
#include "model/decoder_layer.h"
#include "model/draft_eagle3_config.h"
#include "model/policy_model.h"

namespace tlt::model {

class Eagle3Activations;
class Eagle3Tape;

class Eagle3Network {
 public:
  // Zero weights, and the first R tokens. InputError when the sizes are not the target's.
  // REQUIRES: `target` outlives this.
  Eagle3Network(const PolicyModel& target, const Eagle3Config& config);
  Eagle3Network(const Eagle3Network&) = delete;  // parameters() points into the object
  Eagle3Network& operator=(const Eagle3Network&) = delete;

  const PolicyModel& target() const { return target_; }
  const Eagle3Config& config() const { return config_; }
  const Device& device() const { return target_.device(); }
  at::ScalarType type() const { return target_.type(); }
  // "fc.weight", "midlayer.hidden_norm.weight" …, "lm_head.weight".
  const std::vector<Parameter>& parameters() const { return parameters_; }
  kv::KvShape kv_shape() const;
  Gradients make_gradients() const;

  // Random weights, and the head's rows from the target's.
  void initialize(uint64_t seed);

  // [R], ascending: the token of each row of the head.
  const std::vector<int32_t>& target_tokens() const { return target_tokens_; }
  // InputError when they are not R ascending tokens of the vocabulary.
  void set_target_tokens(std::vector<int32_t> tokens);

  // features [T, D] from captured [T, 3 D] (Activations::capture).
  void project(const at::Tensor& captured, at::Tensor& features) const;

  // g' [T, D] from batch.tokens (x_{t+1}) and features [T, D] (g_t, or the g' before); a view into
  // `activations`, valid until its next use. The features may be that view of the call before.
  const at::Tensor& forward(const ops::Batch& batch, const at::Tensor& features, kv::KvCache& cache,
                            Eagle3Activations& activations) const;
  // out [T, R] float32, from g' [T, D].
  void logits(const at::Tensor& next, Eagle3Activations& activations, at::Tensor& out) const;

  // Training: whole sequences from their first pair on. Norm g' [T, D], which the head reads.
  const at::Tensor& forward(Eagle3Tape& tape, const at::Tensor& captured) const;
  // The head on rows of that: [R', D] -> [R', R] float32, and its gradients.
  void logits(const at::Tensor& normed, at::Tensor& out) const;
  void logits_backward(const at::Tensor& normed, const at::Tensor& d_logits, at::Tensor& d_normed,
                       Gradients& gradients) const;
  // Adds the gradients of all parameters below the head, from d_normed [T, D].
  void backward(Eagle3Tape& tape, const at::Tensor& d_normed, Gradients& gradients) const;

 private:
  // The rows q, k and v read, [T, 2 D].
  const at::Tensor& join(const ops::Batch& batch, const at::Tensor& features,
                         Eagle3Activations& activations) const;
  at::Tensor& gradient(Gradients& gradients, int64_t index) const {
    return gradients.tensors[static_cast<size_t>(index)];
  }

  const PolicyModel& target_;
  Eagle3Config config_;
  ops::Weight fc_;                                        // [D, 3 D]
  at::Tensor embedding_norm_, feature_norm_, last_norm_;  // [D]
  DecoderLayer layer_;
  ops::Weight head_;  // [R, D]
  std::vector<int32_t> target_tokens_;
  mutable RopeTable rope_;
  int64_t fc_index_ = 0, embedding_norm_index_ = 0, feature_norm_index_ = 0, last_norm_index_ = 0,
          head_index_ = 0;  // into parameters_
  std::vector<Parameter> parameters_;
};

}  // namespace tlt::model

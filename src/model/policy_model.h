// PolicyModel: the decoder that engine and trainer share: the same weights, the same forward pass.
//
// Owns       the weights in the compute type, the only copy on the worker (the optimizer has the
//            float32 master weights).
// Not here   the KV cache (kv/), the files (hf_folder.h), losses and optimizer (train/).
// Threading  engine thread only.
//
//   Activations activations(model, /*max_rows=*/512);
//   const at::Tensor& hidden = model.forward(batch, cache, activations);   // [T, D], normed
//   model.logits(hidden, logits);                                          // [T, V] float32
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "model/decoder_layer.h"
#include "model/model_config.h"
#include "model/parameter.h"
#include "model/rope.h"

namespace tlt::model {

class Activations;
class Tape;

class PolicyModel {
 public:
  // Zero weights: fill them with hf_folder.h or initialize().
  PolicyModel(const ModelConfig& config, const Device& device, at::ScalarType type);
  PolicyModel(const PolicyModel&) = delete;  // parameters() points into the object
  PolicyModel& operator=(const PolicyModel&) = delete;

  const ModelConfig& config() const { return config_; }
  const Device& device() const { return device_; }
  at::ScalarType type() const { return type_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // The number of token ids that occur. The vocabulary may have more rows, as padding (Qwen2.5 has
  // 151,665 and 151,936); those are never sampled. Until set_tokens() all rows count.
  int64_t tokens() const { return tokens_; }
  void set_tokens(int64_t tokens);
  kv::KvShape kv_shape() const;
  Gradients make_gradients() const;

  // Random weights for a training from scratch.
  void initialize(uint64_t seed);

  // From now on forward passes sum the outputs of attention and feed-forward over this many slices,
  // which gives the bits of a tensor parallel group of this size (tensor_parallel.h). Initially 1.
  void set_slices(int64_t slices);

  // Final hidden states [T, D] (after the norm; a view into `activations`, valid until its next
  // use).
  const at::Tensor& forward(const ops::Batch& batch, kv::KvCache& cache,
                            Activations& activations) const;

  // The embeddings of the batch's tokens: out [T, D].
  void embed(const ops::Batch& batch, at::Tensor& out) const;

  // The LM head: hidden [R, D] -> logits [R, V] float32.
  void logits(const at::Tensor& hidden, at::Tensor& out) const;

  // Rows of the LM head: out [R, D] for tokens [R].
  void head_rows(std::span<const int32_t> tokens, at::Tensor& out) const {
    head().gather(device_, tokens, out);
  }

  // Training: forward() with everything kept that backward needs (model/tape.h).
  // Final hidden states [T, D] of the sequences added to the tape.
  const at::Tensor& forward(Tape& tape) const;
  // The next layer of it, for a caller that has other work in between. False: it was the last one,
  // and the result is tape.hidden().
  bool forward_layer(Tape& tape) const;
  // d_hidden [R, D] and the LM head's gradient, from hidden [R, D] and d_logits [R, V] float32.
  void logits_backward(const at::Tensor& hidden, const at::Tensor& d_logits, at::Tensor& d_hidden,
                       Gradients& gradients) const;
  // d_hidden [R, D] only: for a network that uses this LM head without training it.
  void logits_backward_input(const at::Tensor& d_logits, at::Tensor& d_hidden) const;
  // Adds the gradients of all parameters below the LM head, from d_hidden [T, D], the gradient of
  // forward()'s result.
  void backward(Tape& tape, const at::Tensor& d_hidden, Gradients& gradients) const;
  // Stages of a backward pass (BackwardStages): 0 is logits_backward() of all rows, the others
  // are those of backward_layer(), from the last layer to the first.
  int64_t backward_stages() const { return config_.layers + 1; }
  // The next layer of it. False: it was the last one.
  bool backward_layer(Tape& tape, const at::Tensor& d_hidden, Gradients& gradients) const;

 private:
  friend class Activations;
  friend class PolicyShard;
  friend class Tape;

  const at::Tensor& forward_through(const std::vector<DecoderLayer>& layers,
                                    const ops::Batch& batch, kv::KvCache& cache,
                                    Activations& activations) const;

  // The same off the CPU, where the tokens are on the device already.
  void embed(const ops::Batch& batch, const ops::DeviceBatch& on_device, at::Tensor& out) const;

  // The part of a forward pass between the attentions of layers `layer` - 1 and `layer`.
  void forward_rows(const std::vector<DecoderLayer>& layers, int64_t layer,
                    Activations& activations) const;

  void list_parameters();
  void begin_forward(Tape& tape) const;
  void begin_backward(Tape& tape, const at::Tensor& d_hidden, Gradients& gradients) const;
  const ops::Weight& head() const { return config_.tied ? embedding_ : head_; }

  ModelConfig config_;
  int64_t tokens_ = 0;
  Device device_;
  at::ScalarType type_;
  ops::Weight embedding_;       // tied: embedding and LM head
  at::Tensor embedding_table_;  // untied: [V, D] in the compute type
  ops::Weight head_;            // untied
  std::vector<DecoderLayer> layers_;
  at::Tensor final_norm_;  // [D]
  mutable RopeTable rope_;
  int64_t embedding_index_ = 0, final_norm_index_ = 0, head_index_ = 0;  // into parameters_
  std::vector<Parameter> parameters_;
};

}  // namespace tlt::model

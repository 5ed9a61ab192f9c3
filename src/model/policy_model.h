// PolicyModel: the decoder, used by the engine and by the trainer alike: same weights, same forward
// pass.
//
// Owns       the weights in the compute type, the only copy in the worker (the optimizer has the
// float32 master). Not here   the KV cache (kv/), the files (hf_folder.h), losses and optimizer
// (train/). Threading  engine thread only.
//
//   Activations activations(model, /*max_rows=*/512);
//   const at::Tensor& hidden = model.forward(batch, cache, activations);   // [T, D], after the
//   final norm model.logits(hidden, logits);                                          // [T, V]
//   float32
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "model/decoder_layer.h"
#include "model/model_config.h"

namespace tlt::model {

class Activations;
class Tape;

// A trainable tensor. Projections that read the same input are fused (q, k, v; gate, up): one
// Parameter, several tensors of the Hugging Face file.
struct Parameter {
  struct Part {
    std::string name;  // "model.layers.0.self_attn.q_proj.weight"
    int64_t first_row = 0;
    int64_t rows = 0;
  };
  std::vector<Part> parts;
  ops::Weight* matrix = nullptr;  // [N, K], or …
  at::Tensor* tensor = nullptr;  // … norm weight or bias [N] (float32 holding compute-type values),
                                 // or an untied embedding [V, D]
  bool decays = false;                   // weight decay applies: matrices and embeddings
  at::ScalarType round_to = at::kFloat;  // the compute type, which `tensor` holds values of

  std::string name() const { return parts.front().name; }
  std::vector<int64_t> shape() const;
  // Float32 copy of the values, in shape().
  at::Tensor read(const Device& device) const;
  // Sets the values from float32 [rows of part or of all, …], rounding to the compute type.
  void write(const Device& device, const at::Tensor& values, int64_t first_row = 0) const;
};

// Float32 gradients, in the order of PolicyModel::parameters().
struct Gradients {
  std::vector<at::Tensor> tensors;
  void zero();
};

class PolicyModel {
 public:
  // Zero weights: fill them by hf_folder.h or initialize().
  PolicyModel(const ModelConfig& config, const Device& device, at::ScalarType type);
  PolicyModel(const PolicyModel&) = delete;  // parameters() points into the object
  PolicyModel& operator=(const PolicyModel&) = delete;

  const ModelConfig& config() const { return config_; }
  const Device& device() const { return device_; }
  at::ScalarType type() const { return type_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  kv::KvShape kv_shape() const;
  Gradients make_gradients() const;

  // Random weights for a training from scratch: embeddings 0.02, matrices fan_in^-1/2,
  // residual-writing ones 0.3 of that.
  void initialize(uint64_t seed);

  // Final hidden states [T, D] (after the norm; a view into `activations`, valid until its next
  // use).
  const at::Tensor& forward(const ops::Batch& batch, kv::KvCache& cache,
                            Activations& activations) const;

  // The head: hidden [R, D] -> logits [R, V] float32.
  void logits(const at::Tensor& hidden, at::Tensor& out) const;

  // Training: forward() with everything kept that backward needs (model/tape.h).
  // Final hidden states [T, D] of the sequences added to the tape.
  const at::Tensor& forward(Tape& tape) const;
  // d_hidden [R, D] and the head's gradient, from hidden [R, D] and d_logits [R, V] float32.
  void logits_backward(const at::Tensor& hidden, const at::Tensor& d_logits, at::Tensor& d_hidden,
                       Gradients& gradients) const;
  // Adds the gradients of all parameters below the head, from d_hidden [T, D] (the forward's
  // result).
  void backward(Tape& tape, const at::Tensor& d_hidden, Gradients& gradients) const;

 private:
  friend class Activations;
  friend class Tape;

  void list_parameters();
  // Uploads the tokens, looks up their embeddings.
  void embed(const ops::Batch& batch, at::Tensor& tokens, at::Tensor& out) const;
  // The table of rotations, grown to the batch's last position.
  const at::Tensor& cos_sin(const ops::Batch& batch) const;
  const ops::Weight& head() const { return config_.tied ? embedding_ : head_; }

  ModelConfig config_;
  Device device_;
  at::ScalarType type_;
  ops::Weight embedding_;       // tied: embedding and head
  at::Tensor embedding_table_;  // untied: [V, D] in the compute type
  ops::Weight head_;            // untied
  std::vector<DecoderLayer> layers_;
  at::Tensor final_norm_;                                                // [D]
  mutable at::Tensor cos_sin_;                                           // [positions, H]
  int64_t embedding_index_ = 0, final_norm_index_ = 0, head_index_ = 0;  // into parameters_
  std::vector<Parameter> parameters_;
};

}  // namespace tlt::model

// PolicyModel: the decoder that engine and trainer share: the same weights, the same forward pass.
//
// It may be one rank's part of a model (policy_shard.h): the ranks of a tensor parallel group then
// call the same functions with the same batch, and all get the results of the whole model.
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
  // The part of `whole` that a rank computes: its heads, its part of the feed-forward's inner size and
  // of the vocabulary, as copies; the norms are those of `whole`, and so are the embeddings that tokens
  // get. parameters() are the same as those of whole, in the same order, each with this rank's rows or
  // columns (rows_of_slice). REQUIRES: both outlive this.
  PolicyModel(const PolicyModel& whole, TensorParallelRanks& ranks);
  PolicyModel(const PolicyModel&) = delete;  // parameters() points into the object
  PolicyModel& operator=(const PolicyModel&) = delete;

  const ModelConfig& config() const { return config_; }  // of the whole model
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

  // From now on forward and backward passes sum over this many slices, which gives the bits of a tensor
  // parallel group of this size (tensor_parallel.h). Initially 1. REQUIRES: not a part.
  void set_slices(int64_t slices);
  // Copies the weights of the whole model again. REQUIRES: a part.
  void copy_part();

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
  friend class Tape;

  // The same off the CPU, where the tokens are on the device already.
  void embed(const ops::Batch& batch, const ops::DeviceBatch& on_device, at::Tensor& out) const;

  // The part of a forward pass between the attentions of layers `layer` - 1 and `layer`.
  void forward_rows(int64_t layer, Activations& activations) const;

  void make_vocabulary(int64_t rows);
  void list_parameters();
  // Rows of the vocabulary that a part has; the last ranks may have padding, or no row.
  std::vector<RowBlock> own_rows() const;
  void embed_backward(const at::Tensor& d, std::span<const int32_t> tokens,
                      at::Tensor& d_embedding) const;
  void begin_forward(Tape& tape) const;
  void begin_backward(Tape& tape, const at::Tensor& d_hidden, Gradients& gradients) const;
  const ops::Weight& head() const { return config_.tied ? embedding_ : head_; }

  const PolicyModel* const whole_ = nullptr;  // null: this is no part
  SlicedSum sum_;                             // with ranks in a part
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
  mutable RowBuffer gathered_logits_;  // of a part: [S R, rows of head()] float32
  int64_t embedding_index_ = 0, final_norm_index_ = 0, head_index_ = 0;  // into parameters_
  std::vector<Parameter> parameters_;
};

}  // namespace tlt::model

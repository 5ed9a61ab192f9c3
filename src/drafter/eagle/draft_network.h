// DraftNetwork: the network of an EAGLE draft model: one decoder layer that reads hidden states of
// the target and predicts the next ones. Its two kinds: draft_eagle.h (EAGLE-1/2), draft_eagle3.h.
//
//   states [T, S] of the target --features()--> [T, D] --forward(), with the tokens x_{t+1}-->
//     next [T, D] --logits()--> [T, R] of x_{t+2}
//
// In further drafting, the next state of a draft token replaces its feature. Row t has position t,
// counted from the first pair that is given: only differences of positions matter.
//
// Owns       its layer and its other trained parameters, in the target's compute type.
// Borrows    the target: embedding and, for EAGLE-1/2, LM head are read there, never copied or
//            written.
// Not here   trees (drafter/eagle/eagle_drafter.h), losses (drafter_training/), files
//            (draft_folder.h).
// Threading  engine thread only.
//
//   const auto network = load_drafter(folder, *target);
//   const at::Tensor& features = network->features(states, activations);             // [T, D]
//   const at::Tensor& next = network->forward(batch, features, cache, activations);  // [T, D]
//   network->logits(next, activations, logits);                                      // [T, R]
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/kv_cache.h"
#include "model/decoder_layer.h"
#include "model/policy_model.h"

namespace tlt::drafter {

class DraftActivations;
class DraftTape;
struct DraftPass;
struct DraftScratch;

class DraftNetwork {
 public:
  virtual ~DraftNetwork() = default;
  DraftNetwork(const DraftNetwork&) = delete;  // parameters() points into the object
  DraftNetwork& operator=(const DraftNetwork&) = delete;

  // "eagle" or "eagle3".
  virtual std::string_view algorithm() const = 0;
  const model::PolicyModel& target() const { return target_; }
  const model::ModelConfig& config() const { return config_; }  // of the layer
  const Device& device() const { return target_.device(); }
  at::ScalarType type() const { return target_.type(); }
  // The trained and saved parameters, with their names in a folder.
  const std::vector<model::Parameter>& parameters() const { return parameters_; }
  kv::KvShape kv_shape() const;
  model::Gradients make_gradients() const;

  // Fills the weights with random values.
  virtual void initialize(uint64_t seed) = 0;
  // A new network of the same configuration, with the same weights.
  virtual std::unique_ptr<DraftNetwork> copy() const = 0;
  // REQUIRES: `from` is of the same configuration.
  void copy_weights(const DraftNetwork& from);

  // The layers of the target whose inputs it reads (auxiliary hidden states), concatenated by
  // columns (S = 3 D); empty: it reads the final hidden states (S = D).
  virtual const std::vector<int64_t>& auxiliary_layers() const;
  int64_t feature_columns() const;

  // The tokens of the LM head's rows, [R], ascending; empty: row r is token r, R = V.
  virtual const std::vector<int32_t>& head_tokens() const;
  int64_t head_rows() const;
  int32_t token_of(int64_t row) const {
    return head_tokens().empty() ? static_cast<int32_t>(row)
                                 : head_tokens()[static_cast<size_t>(row)];
  }

  // The target's tokens by frequency, most frequent first (draft_hot_tokens.h); empty: unknown.
  const std::vector<int32_t>& hot_tokens() const { return hot_tokens_; }
  void set_hot_tokens(std::vector<int32_t> tokens) { hot_tokens_ = std::move(tokens); }

  // The features [T, D] for states [T, S]: the states, or a view into `activations` that is valid
  // until its next use here.
  const at::Tensor& features(const at::Tensor& states, DraftActivations& activations) const;
  // next [T, D] from batch.tokens (x_{t+1}) and features [T, D]; a view into `activations`, valid
  // until its next use here. The features may be the view that the previous call returned.
  const at::Tensor& forward(const ops::Batch& batch, const at::Tensor& features, kv::KvCache& cache,
                            DraftActivations& activations) const;
  // Draft logits: out [n, R] float32, from rows of next [n, D].
  void logits(const at::Tensor& next, DraftActivations& activations, at::Tensor& out) const;

  // Training: whole sequences from their first pair on (DraftTape::add_sequence), states [T, S];
  // keeps everything that backward needs. Returns the input of the LM head, [T, D].
  const at::Tensor& forward(DraftTape& tape, const at::Tensor& states) const;
  // One more pass of the training-time test: the feature of row t is the previous pass's next state
  // of row t - 1, and it attends to what it would in drafting (ttt_attention.h). Returns the
  // input of the LM head; in pass k the first k rows of a sequence have no meaning.
  const at::Tensor& run_ttt_pass(DraftTape& tape) const;
  // The LM head on rows of its input: [n, D] -> [n, R] float32; and the gradients of input and
  // head.
  virtual void head(const at::Tensor& read, at::Tensor& out) const = 0;
  virtual void head_backward(const at::Tensor& read, const at::Tensor& d_logits, at::Tensor& d_read,
                             model::Gradients& gradients) const = 0;
  // Adds the gradients of all parameters below the LM head, from d_read [T, D]. d_features [T, D],
  // if given, is set to the gradient of the features. REQUIRES: one pass.
  void backward(DraftTape& tape, const at::Tensor& d_read, model::Gradients& gradients,
                at::Tensor* d_features = nullptr) const;
  // The same for one of several passes. d_read is zero in rows without meaning. REQUIRES: called
  // from the last pass to the first, each once.
  void backward_pass(DraftTape& tape, int64_t pass, const at::Tensor& d_read,
                     model::Gradients& gradients) const;

 protected:
  // REQUIRES: `config` fits the target, which outlives this. `input_columns`: width of the input of
  // q, k, v.
  DraftNetwork(const model::PolicyModel& target, const model::ModelConfig& config,
               int64_t input_columns);

  at::Tensor& gradient(model::Gradients& gradients, int64_t index) const {
    return gradients.tensors[static_cast<size_t>(index)];
  }

  const model::PolicyModel& target_;
  const model::ModelConfig config_;
  model::DecoderLayer layer_;
  std::vector<model::Parameter> parameters_;

 private:
  const at::Tensor& run_pass(DraftTape& tape, const at::Tensor& features) const;
  // Backward through the layer: d [T, D], the gradient of pass.next, becomes that of pass.stream.
  void layer_backward(DraftTape& tape, int64_t index, at::Tensor& d,
                      model::Gradients& gradients) const;
  void backward(DraftTape& tape, int64_t index, const at::Tensor& d_read,
                model::Gradients& gradients, at::Tensor* d_features) const;

  // The features of the target's states: the states, or `out`.
  virtual const at::Tensor& project(const at::Tensor& states, model::RowBuffer& out) const = 0;
  virtual void project_backward(const at::Tensor& states, const at::Tensor& d_features,
                                model::Gradients& gradients) const = 0;
  // Before the layer: fills pass.stream, the residual stream, and the input of q, k and v.
  virtual void enter(const ops::Batch& batch, const at::Tensor& features,
                     DraftPass& pass) const = 0;
  virtual const at::Tensor& input(DraftPass& pass) const = 0;
  // From d_stream [T, D] and d_input, the gradient of input(); sets d_features if given.
  virtual void enter_backward(DraftPass& pass, DraftScratch& scratch, at::Tensor& d_stream,
                              model::Gradients& gradients, at::Tensor* d_features) const = 0;
  // After the layer: the input of the LM head for next: next itself, or `out`.
  virtual const at::Tensor& read(const at::Tensor& next, model::RowBuffer& out) const = 0;
  // d_next [T, D] += the gradient through read().
  virtual void read_backward(const at::Tensor& d_read, const at::Tensor& next, at::Tensor& d_next,
                             model::Gradients& gradients) const = 0;

  mutable model::RopeTable rope_;
  std::vector<int32_t> hot_tokens_;
};

}  // namespace tlt::drafter

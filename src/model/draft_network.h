// DraftNetwork: the network of an EAGLE drafter: one decoder layer that continues what a target
// shows of its hidden states. Its two kinds: draft_eagle.h (EAGLE-1, EAGLE-2), draft_eagle3.h.
//
//   states [T, S] of the target --features()--> [T, D] --forward(), with the tokens x_{t+1}-->
//     next [T, D] --logits()--> [T, R] of x_{t+2}
//
// Drafting on, a guess's next state stands where its feature would. Row t stands at position t,
// counted from the first pair that is given: only differences of positions matter.
//
// Owns       its layer and what else it trains, in the target's compute type.
// Borrows    the target: embedding and, for EAGLE-1/2, head are read there, never copied, never
//            written.
// Not here   trees (spec/eagle_drafter.h), losses (spot/), files (draft_folder.h).
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

namespace tlt::model {

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
  const PolicyModel& target() const { return target_; }
  const ModelConfig& config() const { return config_; }  // of its layer
  const Device& device() const { return target_.device(); }
  at::ScalarType type() const { return target_.type(); }
  // What is trained and saved, under its names in a folder.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  kv::KvShape kv_shape() const;
  Gradients make_gradients() const;

  // Random weights.
  virtual void initialize(uint64_t seed) = 0;
  // Another of the same configuration, with the same weights.
  virtual std::unique_ptr<DraftNetwork> copy() const = 0;
  // REQUIRES: `from` is of the same configuration.
  void copy_weights(const DraftNetwork& from);

  // What of the target it is shown: what goes into these layers, one beside the other (S = 3 D);
  // none: the final states (S = D).
  virtual const std::vector<int64_t>& shown_layers() const;
  int64_t shown_columns() const;

  // The tokens of the head's rows, [R], ascending; empty: row r is token r, R = V.
  virtual const std::vector<int32_t>& head_tokens() const;
  int64_t head_rows() const;
  int32_t token_of(int64_t row) const {
    return head_tokens().empty() ? static_cast<int32_t>(row)
                                 : head_tokens()[static_cast<size_t>(row)];
  }

  // The target's tokens by how often they occur, most frequent first (draft_hot_tokens.h); empty:
  // not known.
  const std::vector<int32_t>& hot_tokens() const { return hot_tokens_; }
  void set_hot_tokens(std::vector<int32_t> tokens) { hot_tokens_ = std::move(tokens); }

  // [T, D] of states [T, S]: those themselves, or a view into `activations`, valid until its next
  // use here.
  const at::Tensor& features(const at::Tensor& states, DraftActivations& activations) const;
  // next [T, D] from batch.tokens (x_{t+1}) and features [T, D]; a view into `activations`, valid
  // until its next use here. The features may be that view of the call before.
  const at::Tensor& forward(const ops::Batch& batch, const at::Tensor& features, kv::KvCache& cache,
                            DraftActivations& activations) const;
  // out [n, R] float32, from rows of next [n, D].
  void logits(const at::Tensor& next, DraftActivations& activations, at::Tensor& out) const;

  // Training: whole sequences from their first pair on (DraftTape::add_sequence), shown states
  // [T, S], with everything kept that backward needs. What the head reads, [T, D].
  const at::Tensor& forward(DraftTape& tape, const at::Tensor& states) const;
  // One more pass behind it: row t has the last pass's next state of row t - 1 for its feature, and
  // sees what it would see in drafting (unrolled_attention.h). What the head reads; in pass k the
  // first k rows of a sequence mean nothing.
  const at::Tensor& unroll(DraftTape& tape) const;
  // The head on rows of that: [n, D] -> [n, R] float32; its input's and its own gradients.
  virtual void head(const at::Tensor& read, at::Tensor& out) const = 0;
  virtual void head_backward(const at::Tensor& read, const at::Tensor& d_logits, at::Tensor& d_read,
                             Gradients& gradients) const = 0;
  // Adds the gradients of all parameters below the head, from d_read [T, D]. d_features [T, D]
  // receives the gradient of the features where given. REQUIRES: one pass.
  void backward(DraftTape& tape, const at::Tensor& d_read, Gradients& gradients,
                at::Tensor* d_features = nullptr) const;
  // The same of one pass of several. d_read is zero in rows that mean nothing. REQUIRES: from the
  // last pass to the first, each once.
  void backward_pass(DraftTape& tape, int64_t pass, const at::Tensor& d_read,
                     Gradients& gradients) const;

 protected:
  // REQUIRES: `config` fits the target, which outlives this. `input_columns`: of what q, k, v read.
  DraftNetwork(const PolicyModel& target, const ModelConfig& config, int64_t input_columns);

  at::Tensor& gradient(Gradients& gradients, int64_t index) const {
    return gradients.tensors[static_cast<size_t>(index)];
  }

  const PolicyModel& target_;
  const ModelConfig config_;
  DecoderLayer layer_;
  std::vector<Parameter> parameters_;

 private:
  const at::Tensor& run_pass(DraftTape& tape, const at::Tensor& features) const;
  // Through the layer: d [T, D] of pass.next becomes that of pass.stream.
  void layer_backward(DraftTape& tape, int64_t index, at::Tensor& d, Gradients& gradients) const;
  void backward(DraftTape& tape, int64_t index, const at::Tensor& d_read, Gradients& gradients,
                at::Tensor* d_features) const;

  // Features of what is shown: the states, or `out`.
  virtual const at::Tensor& project(const at::Tensor& states, RowBuffer& out) const = 0;
  virtual void project_backward(const at::Tensor& states, const at::Tensor& d_features,
                                Gradients& gradients) const = 0;
  // Before the layer: fills pass.stream, the residual stream, and what q, k and v read.
  virtual void enter(const ops::Batch& batch, const at::Tensor& features,
                     DraftPass& pass) const = 0;
  virtual const at::Tensor& input(DraftPass& pass) const = 0;
  // From d_stream [T, D] and d_input, the gradient of input(): the features' where given.
  virtual void enter_backward(DraftPass& pass, DraftScratch& scratch, at::Tensor& d_stream,
                              Gradients& gradients, at::Tensor* d_features) const = 0;
  // Behind the layer: what the head reads of next: that itself, or `out`.
  virtual const at::Tensor& read(const at::Tensor& next, RowBuffer& out) const = 0;
  // d_next [T, D] += the gradient through that.
  virtual void read_backward(const at::Tensor& d_read, const at::Tensor& next, at::Tensor& d_next,
                             Gradients& gradients) const = 0;

  mutable RopeTable rope_;
  std::vector<int32_t> hot_tokens_;
};

}  // namespace tlt::model

// DecoderLayer: one layer of the decoder: attention, then the gated feed-forward, each behind a
// norm and added to the residual stream. Forward for everybody; backward by hand, from the
// activations forward left behind.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "kv/kv_cache.h"
#include "model/model_config.h"
#include "model/parameter.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace tlt::model {

// A [rows, columns] view into memory that is kept and grows when more rows are asked for. The
// view's copies change their size with it.
class RowBuffer {
 public:
  const at::Tensor& resize(const Device& device, int64_t rows, int64_t columns,
                           at::ScalarType type);
  at::Tensor& view() { return view_; }
  int64_t memory_bytes() const {
    return storage_.defined() ? static_cast<int64_t>(storage_.nbytes()) : 0;
  }

 private:
  at::Tensor storage_;
  at::Tensor view_;
};

// What forward leaves and backward reads.
struct LayerActivations {
  RowBuffer normed;   // [T, D] input of q, k, v; without an input norm that is x itself
  RowBuffer qkv;      // [T, (N + 2K) H] rotated
  RowBuffer raw_qkv;  // [T, (N + 2K) H] before norm and rotation; only where q and k are normed and
                      // `keep`
  RowBuffer attended;       // [T, N H]
  RowBuffer lse;            // [T, N] float32; only with `keep`
  RowBuffer middle;         // [T, D] residual stream after attention
  RowBuffer normed_middle;  // [T, D]
  RowBuffer gate_up;        // [T, 2F]
  RowBuffer gated;          // [T, F]
};

// The scratch of one backward pass, shared by the layers.
struct LayerScratch {
  RowBuffer d_gated, d_gate_up, d_normed, d_attended, d_qkv;
};

// Where the layer's gradients go: indices into Gradients::tensors; -1 where the layer has no such
// parameter.
struct LayerParameters {
  int64_t input_norm = -1, qkv = -1, qkv_bias = -1, q_norm = -1, k_norm = -1, output = -1,
          middle_norm = -1, gate_up = -1, down = -1;
};

struct DecoderLayer {
  ops::Weight qkv;            // [(N + 2K) H, D]: q, k, v; other columns with forward_from()
  ops::Weight output;         // [D, N H]
  ops::Weight gate_up;        // [2F, D]
  ops::Weight down;           // [D, F]
  at::Tensor qkv_bias;        // [(N + 2K) H]; undefined when the family has none
  at::Tensor input_norm;      // [D]; undefined: q, k, v read x as it is (EAGLE)
  at::Tensor middle_norm;     // [D]
  at::Tensor q_norm, k_norm;  // [H]; Qwen3
  LayerParameters parameters;

  DecoderLayer(const ModelConfig& config, const Device& device, at::ScalarType type,
               bool has_input_norm = true)
      : DecoderLayer(config, device, type, has_input_norm, config.hidden) {}
  // q, k and v read `input_columns` wide rows: of forward_from() and backward_from().
  DecoderLayer(const ModelConfig& config, const Device& device, at::ScalarType type,
               bool has_input_norm, int64_t input_columns);

  // Adds what the layer has, with names behind `prefix`, and fills `parameters`.
  void list_parameters(const std::string& prefix, ParameterList& list);

  ops::AttentionShape attention_shape() const { return shape_; }

  // out [T, D] from x [T, D]; may be the same tensor. `keep`: leave in `a` what backward needs.
  void forward(const Device& device, const ops::Batch& batch, const at::Tensor& cos_sin,
               const at::Tensor& x, const ops::KvLayer& cache, LayerActivations& a, at::Tensor& out,
               bool keep) const;

  // The same where q, k and v read `input` [T, columns of qkv] and x is the residual stream alone.
  void forward_from(const Device& device, const ops::Batch& batch, const at::Tensor& cos_sin,
                    const at::Tensor& input, const at::Tensor& x, const ops::KvLayer& cache,
                    LayerActivations& a, at::Tensor& out, bool keep) const;

  // d [T, D]: gradient of the output on entry, of the input x on return. Adds the parameters'
  // gradients.
  void backward(const Device& device, const ops::Batch& batch, const at::Tensor& cos_sin,
                const at::Tensor& x, const ops::KvLayer& cache, LayerActivations& a,
                LayerScratch& s, at::Tensor& d, Gradients& gradients) const;

  // d [T, D]: gradient of the output on entry, of the residual stream x on return. d_input receives
  // that of `input`, or it is added (it may be d then).
  void backward_from(const Device& device, const ops::Batch& batch, const at::Tensor& cos_sin,
                     const at::Tensor& input, const ops::KvLayer& cache, LayerActivations& a,
                     LayerScratch& s, at::Tensor& d, at::Tensor& d_input, bool accumulate,
                     Gradients& gradients) const;

  // The two halves of forward_from() and backward_from() around the attention, for one of another
  // kind (unrolled_attention.h): fills a.qkv …
  void project(const Device& device, const at::Tensor& input, LayerActivations& a, bool keep) const;
  // … reads a.attended …
  void finish(const Device& device, const at::Tensor& x, LayerActivations& a,
              at::Tensor& out) const;
  // … fills s.d_attended, and d becomes the gradient of x but for what comes through q, k, v …
  void finish_backward(const Device& device, LayerActivations& a, LayerScratch& s, at::Tensor& d,
                       Gradients& gradients) const;
  // … reads s.d_qkv.
  void project_backward(const Device& device, const at::Tensor& input, LayerScratch& s,
                        at::Tensor& d_input, bool accumulate, Gradients& gradients) const;
  ops::RopeStore rope(const at::Tensor& cos_sin) const;

 private:
  ops::AttentionShape shape_;
  int64_t hidden_, intermediate_;
  double epsilon_;
  at::ScalarType type_;
};

}  // namespace tlt::model

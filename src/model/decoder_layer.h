// DecoderLayer: one layer of the decoder: attention, then the gated feed-forward, each after a norm
// and added to the residual stream. Forward for engine and trainer; backward derived by hand, from
// the activations that forward keeps.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "kv/kv_cache.h"
#include "model/model_config.h"
#include "model/parameter.h"
#include "model/tensor_parallel.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace tlt::model {

// A [rows, columns] view into memory that is kept and grows when more rows are needed. Copies of
// the view change their size with it.
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

// Activations that forward writes and backward reads.
struct LayerActivations {
  RowBuffer normed;    // [T, D] input of q, k, v; x itself if there is no input norm
  RowBuffer qkv;       // [T, (N + 2K) H] rotated
  RowBuffer raw_qkv;   // [T, (N + 2K) H] before norm and rotation; only if q and k are normed and
                       // with `keep`
  RowBuffer attended;  // [T, N H]
  RowBuffer lse;       // [T, N] float32; only with `keep`
  RowBuffer middle;    // [T, D] residual stream after attention
  RowBuffer normed_middle;  // [T, D]
  RowBuffer gate_up;        // [T, 2F]
  RowBuffer gated;          // [T, F]
  RowBuffer parts;          // [S T, D] float32: parts of a sum over S slices (SlicedSum)
};

// Temporary memory of one backward pass, shared by the layers.
struct LayerScratch {
  RowBuffer d_gated, d_gate_up, d_normed, d_attended, d_qkv;
};

// The token rows of one pass through a layer.
struct LayerRows {
  const Device& device;
  const ops::Batch& batch;
  const at::Tensor& cos_sin;  // of their positions
  const ops::KvLayer& cache;
  const ops::DeviceBatch* on_device = nullptr;  // ops::AttentionRows
};

// What backward() and its parts share.
struct LayerBackward {
  LayerActivations& a;  // as forward left them
  LayerScratch& s;
  Gradients& gradients;  // those of the parameters are added
};

// Where the gradient of the rows that q, k and v read goes: set, or added.
struct InputGradient {
  at::Tensor& d;
  bool accumulate = false;
};

// Indices of the layer's gradients in Gradients::tensors; -1: the layer has no such parameter.
struct LayerParameters {
  int64_t input_norm = -1, qkv = -1, qkv_bias = -1, q_norm = -1, k_norm = -1, output = -1,
          middle_norm = -1, gate_up = -1, down = -1;
};

struct DecoderLayer {
  ops::Weight qkv;            // [(N + 2K) H, D]: q, k, v; with forward_from() of other width
  ops::Weight output;         // [D, N H]
  ops::Weight gate_up;        // [2F, D]
  ops::Weight down;           // [D, F]
  at::Tensor qkv_bias;        // [(N + 2K) H]; undefined if the family has none
  at::Tensor input_norm;      // [D]; undefined: q, k, v read x directly (EAGLE)
  at::Tensor middle_norm;     // [D]
  at::Tensor q_norm, k_norm;  // [H]; Qwen3
  LayerParameters parameters;

  DecoderLayer(const ModelConfig& config, const Device& device, at::ScalarType type,
               bool has_input_norm = true)
      : DecoderLayer(config, device, type, has_input_norm, config.hidden) {}
  // For forward_from() and backward_from(): q, k and v read rows of `input_columns` columns.
  DecoderLayer(const ModelConfig& config, const Device& device, at::ScalarType type,
               bool has_input_norm, int64_t input_columns);

  // Adds the layer's parameters, with `prefix` before their names, and fills `parameters`.
  void list_parameters(const std::string& prefix, ParameterList& list);

  ops::AttentionShape attention_shape() const { return shape_; }

  // How the outputs of attention and feed-forward, and the gradients of their inputs, are summed from
  // now on.
  void set_sum(const SlicedSum& sum) { sum_ = sum; }

  // This layer is rank `rank`'s part of `whole`: copies its weights, and shares the norms of whole.
  void assign_shard(const Device& device, const DecoderLayer& whole, int64_t rank);

  // Computes out [T, D] from x [T, D]; may be the same tensor. `keep`: keeps in `a` what backward
  // needs.
  void forward(const LayerRows& rows, const at::Tensor& x, LayerActivations& a, at::Tensor& out,
               bool keep) const;

  // The three parts of forward(). begin() and finish() work on each row alone; there may be more
  // rows than the batch has, whose results have no meaning.
  void begin(const Device& device, const at::Tensor& x, LayerActivations& a, bool keep) const;
  void attend(const LayerRows& rows, LayerActivations& a, bool keep) const;
  void finish(const Device& device, const at::Tensor& x, LayerActivations& a,
              at::Tensor& out) const;
  // Memory of all that these three write without `keep`, for this number of rows.
  void reserve(const Device& device, int64_t rows, LayerActivations& a) const;

  // What forward_from() reads: q, k and v read `input`; x is the residual stream only.
  struct Input {
    const at::Tensor& input;  // [T, columns of qkv]
    const at::Tensor& x;      // [T, D]
  };
  void forward_from(const LayerRows& rows, const Input& from, LayerActivations& a, at::Tensor& out,
                    bool keep) const;

  // d [T, D]: gradient of the output on entry, of the input x on return. Adds the gradients of the
  // parameters.
  void backward(const LayerRows& rows, const at::Tensor& x, const LayerBackward& pass,
                at::Tensor& d) const;

  // d [T, D]: gradient of the output on entry, of the residual stream x on return. d_input: the
  // gradient of `input`; where it is added it may be d.
  void backward_from(const LayerRows& rows, const at::Tensor& input, const LayerBackward& pass,
                     at::Tensor& d, const InputGradient& d_input) const;

  // The two halves of forward_from() and backward_from() around the attention, for another kind of
  // attention (ttt_attention.h). project() fills a.qkv, finish() reads a.attended …
  void project(const Device& device, const at::Tensor& input, LayerActivations& a, bool keep) const;
  // … finish_backward() fills s.d_attended, and d becomes the gradient of x without the part that
  // comes through q, k, v …
  void finish_backward(const Device& device, const LayerBackward& pass, at::Tensor& d) const;
  // … project_backward() reads s.d_qkv.
  void project_backward(const Device& device, const at::Tensor& input, const LayerBackward& pass,
                        const InputGradient& d_input) const;
  ops::RopeStore rope(const at::Tensor& cos_sin) const;

 private:
  // out = x W^T + residual, which is the residual stream.
  struct Projection {
    const at::Tensor& x;
    const ops::Weight& weight;
    const at::Tensor& residual;
    at::Tensor& out;
  };
  void project_to_stream(const Device& device, const Projection& projection,
                         RowBuffer& parts) const;
  // Rows of the fused projections.
  std::array<int64_t, 3> qkv_rows() const {
    const int64_t keys = shape_.kv_heads * shape_.head_size;
    return {shape_.heads * shape_.head_size, keys, keys};
  }
  std::array<int64_t, 2> gate_up_rows() const { return {intermediate_, intermediate_}; }
  // The gradient of what a matrix reads.
  void backward_input(const Device& device, const InputProduct& product, RowBuffer& parts,
                      const InputGradient& d_input) const;
  void attention_backward(const LayerRows& rows, const LayerBackward& pass) const;

  ops::AttentionShape shape_;
  int64_t hidden_, intermediate_;
  double epsilon_;
  at::ScalarType type_;
  SlicedSum sum_;
};

}  // namespace tlt::model

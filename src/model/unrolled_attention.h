// UnrolledAttention: the attention of a drafter's later training passes, which sees what drafting
// sees (EAGLE-3's training-time test, HASS's aligned contexts; docs/references.md).
//
// In pass k row t stands for a token that was guessed k steps behind the last state of the target:
// it sees the keys of pass 0 up to row t - k, and of its own path row t - k + j of each pass
// j = 1 .. k. The first k rows of a sequence have no such path: nothing attends, and nothing may
// depend on them.
//
//   scores of row t, pass k:  q_k[t] · k_0[0 … t - k],  q_k[t] · k_j[t - k + j]    j = 1 … k
//
// The first part is the ordinary attention over pass 0's pages, whose log-sum-exp takes the k
// others in: [T, N] more memory a pass, no score matrix. Backward is the ordinary one, too, given
// the log-sum-exp of all.
//
// Owns       the gradients of the passes' keys and values while they are added up.
// Not here   projections and norms of the layer (decoder_layer.h).
// Threading  engine thread only; uses the device's pool. The same bits for any number of threads.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "model/decoder_layer.h"

namespace tlt::model {

class UnrolledAttention {
 public:
  struct Sequences {
    const Device& device;
    const ops::Batch& batch;    // whole sequences, from position 0 on
    const at::Tensor& cos_sin;  // of their positions
    ops::KvLayer cache;         // pass 0's
  };
  // Of each pass what DecoderLayer::project left behind, pass 0 first.
  using Passes = std::vector<LayerActivations*>;

  // Of the last of the passes: rotates its queries and keys, and fills `attended` and `lse`. Pass
  // 0's keys and values go into the cache.
  void forward(const DecoderLayer& layer, const Sequences& sequences, const Passes& passes);

  // d_qkv [T, (N + 2K) H] of the last of the passes, before norm and rotation, from d_attended
  // [T, N H]; the rows' gradients are added to the earlier passes'. REQUIRES: from the last pass of
  // forward() to the first, each once.
  void backward(const DecoderLayer& layer, const Sequences& sequences, const Passes& passes,
                const at::Tensor& d_attended, at::Tensor& d_qkv,
                std::vector<at::Tensor>& gradients);

 private:
  const ops::Batch& shifted(const ops::Batch& batch, int64_t rows);

  ops::Batch shifted_;                // the batch's rows from k on, as if from position 0
  std::vector<at::Tensor> d_kv_;      // of each pass [T, 2K, H] float32, keys rotated
  std::unique_ptr<kv::KvCache> own_;  // where a later pass's keys go, unread
};

}  // namespace tlt::model

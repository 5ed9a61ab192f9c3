// TttAttention: the attention of a draft model in later passes of the training-time test, which
// attends to the same keys as in drafting (EAGLE-3's TTT, HASS's aligned contexts;
// docs/references.md).
//
// In pass k row t represents a token drafted k steps after the last state of the target. It attends
// to the keys of pass 0 up to row t - k, and on its own path to row t - k + j of each pass
// j = 1 .. k. The first k rows of a sequence have no such path: they attend to nothing, and no
// result may depend on them.
//
//   scores of row t, pass k:  q_k[t] · k_0[0 … t - k],  q_k[t] · k_j[t - k + j]    j = 1 … k
//
// The first part is the ordinary attention over pass 0's pages; its log-sum-exp is extended by the
// k other scores: [T, N] more memory per pass, no score matrix. Backward also is the ordinary one,
// given the log-sum-exp of all scores.
//
// Owns       the gradients of the passes' K and V during their summation.
// Not here   projections and norms of the layer (decoder_layer.h).
// Threading  engine thread only; uses the device's pool. The result is the same, bit for bit, for
//            any number of threads.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "model/decoder_layer.h"

namespace tlt::drafter {

class TttAttention {
 public:
  // What DecoderLayer::project keeps of each pass, pass 0 first.
  using Passes = std::vector<model::LayerActivations*>;

  // `sequences`: whole ones, from position 0 on, with the cache of pass 0.
  //
  // For the last of the passes: rotates its queries and keys, and fills `attended` and `lse`. The
  // KV entries of pass 0 go into the cache.
  void forward(const model::DecoderLayer& layer, const model::LayerRows& sequences,
               const Passes& passes);

  struct Gradient {
    const at::Tensor& d_attended;         // [T, N H]
    at::Tensor& d_qkv;                    // [T, (N + 2K) H], before norm and rotation
    std::vector<at::Tensor>& parameters;  // those of the layer's norms are added
  };
  // Computes d_qkv of the last of the passes from d_attended; adds the gradients of K and V to the
  // earlier passes'. REQUIRES: called from the last pass of forward() to the first, each once.
  void backward(const model::DecoderLayer& layer, const model::LayerRows& sequences,
                const Passes& passes, const Gradient& gradient);

 private:
  const ops::Batch& shifted(const ops::Batch& batch, int64_t rows);

  ops::Batch shifted_;                // the batch's rows from k on, with positions from 0
  std::vector<at::Tensor> d_kv_;      // by pass: [T, 2K, H] float32, keys rotated
  std::unique_ptr<kv::KvCache> own_;  // receives a later pass's keys; never read
};

}  // namespace tlt::drafter

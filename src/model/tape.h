// Tape: what PolicyModel::forward keeps for backward, over whole sequences.
//
// With `recompute` only the input of each layer is kept, and backward runs a layer's forward again:
// less memory for a third more work. The results are bit-identical.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "model/policy_model.h"
#include "model/tape_batch.h"
#include "ops/device_batch.h"

namespace tlt::model {

class Tape {
 public:
  Tape(const PolicyModel& model, bool recompute);

  // Appends a whole sequence to the next batch, with pages of the tape's own cache.
  void add_sequence(const int32_t* tokens, int32_t count) {
    sequences_.add_sequence(tokens, count);
  }
  // Appends a suffix to the last sequence added by add_sequence (TapeBatch::add_suffix).
  void add_suffix(const int32_t* tokens, int32_t count) { sequences_.add_suffix(tokens, count); }
  const ops::Batch& batch() const { return sequences_.batch(); }
  void clear() {
    sequences_.clear();
    computed_ = 0;
  }
  // Also frees the activations, which are kept for the next pass otherwise.
  void release_memory();
  // Final hidden states [T, D]. REQUIRES: a forward pass of the batch.
  const at::Tensor& hidden() { return hidden_.view(); }

  // The inputs of these layers, concatenated by columns: out [T, layers D]. REQUIRES: a forward
  // pass of the batch.
  void captured(const std::vector<int64_t>& layers, at::Tensor& out);

 private:
  friend class PolicyModel;

  // Allocates the batch's pages; called by forward.
  void prepare_cache();
  LayerActivations& activations(int64_t layer) {
    return layers_[recompute_ ? 0 : static_cast<size_t>(layer)];
  }
  const ops::DeviceBatch* on_device() const { return on_device_ ? &*on_device_ : nullptr; }
  ops::KvLayer cache_layer(int64_t layer) const {
    return sequences_.cache().layer(recompute_ ? 0 : layer);
  }

  const PolicyModel& model_;
  const bool recompute_;
  TapeBatch sequences_;
  std::optional<ops::DeviceBatch> on_device_;  // off the CPU, since forward() began
  int64_t computed_ = 0;  // layers that forward() has been through, less those of backward()
  std::vector<RowBuffer> inputs_;  // of each layer, and the output of the last: [T, D]
  RowBuffer hidden_;               // [T, D] after the final norm
  RowBuffer d_stream_;             // [T, D]
  std::vector<LayerActivations> layers_;
  LayerScratch scratch_;
};

}  // namespace tlt::model

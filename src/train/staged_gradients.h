// StagedGradients: the float32 gradients of a pack while its backward pass computes them. Each stage
// of the pass (model::BackwardStages) completes some, which then go into the sum at once, and
// later stages use their memory: the gradients of one layer exist at a time, and those of the
// embedding and the LM head.
//
// Owns       the memory, as much as is needed at the same time.
// Not here   the sum (gradient_sum.h).
// Threading  engine thread only.
// Invariant  a gradient is zero outside of its stages. In a pass each is added to the sum once.
//
//   StagedGradients staged(model.device(), model.parameters(), model.backward_stages());
//   … the LM head's backward into staged.gradients() …
//   staged.end_stage(sum);
//   for (bool more = true; more; staged.end_stage(sum))
//     more = model.backward_layer(tape, d_hidden, staged.gradients());
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model/parameter.h"
#include "runtime/device.h"
#include "train/gradient_sum.h"

namespace tlt::train {

class StagedGradients {
 public:
  // stages: of a backward pass.
  StagedGradients(const Device& device, const std::vector<model::Parameter>& parameters,
                  int64_t stages);

  // By parameter. Tensors of different stages share memory.
  model::Gradients& gradients() { return gradients_; }

  // A stage of the pass has ended: adds the gradients that are complete. After the last stage the
  // next pass begins.
  void end_stage(GradientSum& sum);
  // Discards a pass in progress.
  void clear();

  int64_t bytes() const { return static_cast<int64_t>(memory_.nbytes()); }

 private:
  at::Tensor memory_;  // float32
  model::Gradients gradients_;
  std::vector<std::vector<size_t>> complete_;  // by stage: the parameters that it completes
  size_t stage_ = 0;                           // in progress
};

}  // namespace tlt::train

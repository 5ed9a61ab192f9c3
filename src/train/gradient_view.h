// GradientView: float32 gradients as an optimizer reads them: a part at a time, so that no copy of
// all of them is needed.
//
// Borrows    where the gradients are: a GradientSum, or model::Gradients.
// Threading  engine thread only.
//
//   optimizer.step(sum.view(), rate);
//   optimizer.step(gradients, rate);     // model::Gradients convert
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "model/parameter.h"

namespace tlt::train {

class GradientView {
 public:
  // Elements first … last-1 of a parameter: float32, contiguous, on the CPU; valid until the next
  // call.
  using Read = std::function<at::Tensor(size_t parameter, int64_t first, int64_t last)>;

  explicit GradientView(Read read) : read_(std::move(read)) {}
  // REQUIRES: `gradients` outlives this.
  GradientView(const model::Gradients& gradients)  // NOLINT(google-explicit-constructor)
      : read_([&gradients](size_t parameter, int64_t first, int64_t last) {
          return gradients.tensors[parameter].view(-1).narrow(0, first, last - first).cpu();
        }) {}

  at::Tensor read(size_t parameter, int64_t first, int64_t last) const {
    return read_(parameter, first, last);
  }

 private:
  Read read_;
};

}  // namespace tlt::train

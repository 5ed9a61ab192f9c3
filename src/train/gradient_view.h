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

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "model/parameter.h"
#include "train/chunks.h"

namespace tlt::train {

class GradientView {
 public:
  // Gets a bucket, and its gradients one after the other: float32, contiguous, on the CPU; they are
  // valid during the call.
  using Use = std::function<void(const Bucket& bucket, const at::Tensor& gradients)>;
  using Read = std::function<void(const std::vector<Bucket>& buckets, const Use& use)>;

  explicit GradientView(Read read) : read_(std::move(read)) {}
  // REQUIRES: `gradients` outlives this.
  GradientView(const model::Gradients& gradients);  // NOLINT(google-explicit-constructor)

  // Calls `use` for one bucket after the other. A bucket of another device is copied while `use` works
  // on the one before.
  void read(const std::vector<Bucket>& buckets, const Use& use) const { read_(buckets, use); }

 private:
  Read read_;
};

// Calls body(span, its gradients) for each span of a bucket that is read.
template <class Body>
void for_spans(const Bucket& bucket, const at::Tensor& gradients, const Body& body) {
  int64_t done = 0;
  for (const TensorSpan& span : bucket) {
    body(span, gradients.narrow(0, done, span.size()));
    done += span.size();
  }
}

}  // namespace tlt::train

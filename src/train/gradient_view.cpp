// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_view.h"

#include <ATen/ATen.h>

namespace tlt::train {

GradientView::GradientView(const model::Gradients& gradients)
    : read_([&gradients](const std::vector<Bucket>& buckets, const Use& use) {
        for (const Bucket& bucket : buckets) {
          std::vector<at::Tensor> values;
          for (const TensorSpan& span : bucket)
            values.push_back(
                gradients.tensors[span.tensor].view(-1).slice(0, span.first, span.last));
          use(bucket, at::cat(values).cpu());
        }
      }) {}

}  // namespace tlt::train

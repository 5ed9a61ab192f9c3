// OutputHead: from the final hidden states of a pack to one number for each response token, and back
// to gradients: log probabilities (head_loss.h) or a critic's values (value_model.h).
//
// Not here   the loss (token_loss.h).
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>

#include "model/parameter.h"
#include "train/sample.h"
#include "train/token_loss.h"

namespace tlt::train {

// A sample and the row of its first token in the hidden states. The rows of a shared prefix are
// elsewhere and are not read (prefix_groups.h): then it is the row that the first token would have.
struct PackedSample {
  const TrainSample* sample = nullptr;
  int64_t first_row = 0;
};

class OutputHead {
 public:
  virtual ~OutputHead() = default;

  // Called with the numbers of response tokens first … of a sample, in order.
  using See =
      std::function<void(const TrainSample& sample, int64_t first, std::span<const float> numbers)>;

  // The numbers of all response tokens. hidden [T, D].
  virtual void score(const at::Tensor& hidden, std::span<const PackedSample> pack,
                     const See& see) = 0;

  // Adds the losses of the pack's tokens, without gradients.
  virtual void measure(const at::Tensor& hidden, std::span<const PackedSample> pack,
                       TokenLoss& loss, const See& see) = 0;

  // As measure(); also adds the head's gradient and returns d_hidden [T, D], zero for rows that
  // predict no response token; valid until the next call.
  virtual const at::Tensor& backward(const at::Tensor& hidden, std::span<const PackedSample> pack,
                                     TokenLoss& loss, model::Gradients& gradients,
                                     const See& see) = 0;
};

}  // namespace tlt::train

// The exact reverse KL divergence KL(student || teacher) of each row over the whole vocabulary, and
// its derivative by the student's logits: the loss of on-policy distillation that does not estimate
// (Agarwal et al., "On-Policy Distillation of Language Models", eq. 3 with beta = 1).
//
//   p = softmax(student / T)   q = softmax(teacher / T)
//   KL = sum_v p_v (log p_v - log q_v)      d KL / d student_v = p_v (log p_v - log q_v - KL) / T
//
// A row depends on that row only, whatever the batch and the threads.
//
// Threading  engine thread only; rows are computed on the device's thread pool.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "runtime/device.h"

namespace tlt::train {

struct KlRows {
  const Device& device;
  const at::Tensor& student;  // [R, V] float32
  double temperature = 1;
};

// Returns each row's divergence. `teacher` [R, V] float32 becomes log q.
std::vector<float> reverse_kl(const KlRows& rows, at::Tensor& teacher);

// Log q becomes scale[row] d KL / d student. `kl`: what reverse_kl() returned.
void reverse_kl_backward(const KlRows& rows, std::span<const float> kl,
                         std::span<const float> scale, at::Tensor& log_q);

}  // namespace tlt::train

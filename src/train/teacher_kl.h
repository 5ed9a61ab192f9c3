// The exact divergence of each row of the student's distribution from the teacher's, and its
// derivative by the student's logits: losses of distillation that do not estimate (Agarwal et al.,
// "On-Policy Distillation of Language Models").
//
//   p = softmax(student / T)   q = softmax(teacher / T)
//   outcomes: all tokens; with top_k the teacher's k most probable ones, and all others as one more
//   reverse: KL(p || q) = sum_o p_o (log p_o - log q_o)   d / d student_v = p_v (log p_o - log q_o - KL) / T
//   forward: KL(q || p) = sum_o q_o (log q_o - log p_o)   d / d student_v = p_v (1 - q_o / p_o) / T
//   o: the outcome of token v
//
// So the divergence over the teacher's top k is never below 0, 0 only if every outcome has the same
// probability, and at most that over all tokens; TRL's loss_add_tail is the same. A row depends on
// that row only, whatever the batch and the threads.
//
// Threading  engine thread only; rows are computed on the device's thread pool.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/device.h"

namespace tlt::train {

struct TeacherKl {
  bool is_forward = false;
  int64_t top_k = 0;  // 0: all tokens
};

struct KlRows {
  const Device& device;
  const at::Tensor& student;  // [R, V] float32
  double temperature = 1;
  TeacherKl kl = {};
};

// Returns each row's divergence. `teacher` [R, V] float32 becomes its derivative by the student's
// logits.
std::vector<float> teacher_kl(const KlRows& rows, at::Tensor& teacher);

// Multiplies each row by its factor.
void scale_rows(std::span<const float> factors, at::Tensor& rows);

}  // namespace tlt::train

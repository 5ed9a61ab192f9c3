// SPDX-License-Identifier: Apache-2.0
#include "train/reverse_kl.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "runtime/thread_pool.h"

namespace tlt::train {
namespace {

// Log-sum-exp of `logits` times `inverse_temperature`.
double log_sum_exp(std::span<const float> logits, double inverse_temperature) {
  const double most = *std::ranges::max_element(logits) * inverse_temperature;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit * inverse_temperature - most);
  return most + std::log(sum);
}

std::span<const float> row_of(const at::Tensor& rows, int64_t i) {
  return {rows.data_ptr<float>() + i * rows.stride(0), static_cast<size_t>(rows.size(1))};
}

std::span<float> mutable_row_of(at::Tensor& rows, int64_t i) {
  return {rows.data_ptr<float>() + i * rows.stride(0), static_cast<size_t>(rows.size(1))};
}

// Calls row(i, student's logits, the values of `other` to read and write) for each row.
template <class Row>
void for_each_row(const KlRows& rows, at::Tensor& other, const Row& row) {
  TLT_CHECK(rows.student.sizes() == other.sizes(), "logits of ", other.size(1), " tokens for ",
            rows.student.size(1));
  const at::Tensor student = rows.student.cpu();
  at::Tensor host = other.cpu();
  rows.device.pool().run(student.size(0), [&](int64_t i) {
    row(static_cast<size_t>(i), row_of(student, i), mutable_row_of(host, i));
  });
  if (!rows.device.is_cpu()) other.copy_(host);
}

}  // namespace

std::vector<float> reverse_kl(const KlRows& rows, at::Tensor& teacher) {
  const double inverse = 1 / rows.temperature;
  std::vector<float> divergences(static_cast<size_t>(rows.student.size(0)));
  for_each_row(rows, teacher, [&](size_t i, std::span<const float> student, std::span<float> q) {
    const double p_sum = log_sum_exp(student, inverse), q_sum = log_sum_exp(q, inverse);
    double kl = 0;
    for (size_t v = 0; v < q.size(); ++v) {
      const double log_p = student[v] * inverse - p_sum, log_q = q[v] * inverse - q_sum;
      kl += std::exp(log_p) * (log_p - log_q);
      q[v] = static_cast<float>(log_q);
    }
    divergences[i] = static_cast<float>(std::max(kl, 0.0));  // below 0 by rounding only
  });
  return divergences;
}

void reverse_kl_backward(const KlRows& rows, std::span<const float> kl,
                         std::span<const float> scale, at::Tensor& log_q) {
  const double inverse = 1 / rows.temperature;
  for_each_row(rows, log_q, [&](size_t i, std::span<const float> student, std::span<float> q) {
    const double p_sum = log_sum_exp(student, inverse), factor = scale[i] * inverse;
    for (size_t v = 0; v < q.size(); ++v) {
      const double log_p = student[v] * inverse - p_sum;
      q[v] = static_cast<float>(factor * std::exp(log_p) * (log_p - q[v] - kl[i]));
    }
  });
}

}  // namespace tlt::train

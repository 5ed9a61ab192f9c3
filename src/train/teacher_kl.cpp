// SPDX-License-Identifier: Apache-2.0
#include "train/teacher_kl.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "runtime/thread_pool.h"

namespace tlt::train {
namespace {

// Tokens by id. Empty: there are none.
using TokenSet = std::vector<bool>;

bool contains(const TokenSet& tokens, size_t token) { return !tokens.empty() && tokens[token]; }

// The tokens that are not among the k of largest logits; of equal ones the first are. NaN counts as
// smallest.
TokenSet outside_top(std::span<const float> logits, int64_t k) {
  if (k == 0 || k >= std::ssize(logits)) return {};
  const auto key = [&](int32_t token) {
    const float logit = logits[static_cast<size_t>(token)];
    return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
  };
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::nth_element(order.begin(), order.begin() + k, order.end(), [&](int32_t a, int32_t b) {
    return key(a) != key(b) ? key(a) > key(b) : a < b;
  });
  TokenSet rest(logits.size(), true);
  for (int64_t i = 0; i < k; ++i) rest[static_cast<size_t>(order[static_cast<size_t>(i)])] = false;
  return rest;
}

// Logits of one row, as log probabilities of outcomes.
class Outcomes {
 public:
  Outcomes(std::span<const float> logits, double inverse_temperature, const TokenSet& rest)
      : logits_(logits), inverse_(inverse_temperature), rest_(rest) {
    sum_ = log_sum_exp([](size_t) { return true; });
    if (!rest.empty()) of_rest_ = log_sum_exp([&](size_t v) { return rest[v]; }) - sum_;
  }
  // log p of a token, of the rest together, and of the outcome of a token.
  double of_token(size_t v) const { return logits_[v] * inverse_ - sum_; }
  double of_rest() const { return of_rest_; }
  double at(size_t v) const { return contains(rest_, v) ? of_rest_ : of_token(v); }

 private:
  template <class Counts>
  double log_sum_exp(const Counts& counts) const {
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t v = 0; v < logits_.size(); ++v)
      if (counts(v)) most = std::max(most, logits_[v] * inverse_);
    for (size_t v = 0; v < logits_.size(); ++v)
      if (counts(v)) sum += std::exp(logits_[v] * inverse_ - most);
    return most + std::log(sum);
  }

  const std::span<const float> logits_;
  const double inverse_;
  const TokenSet& rest_;
  double sum_ = 0, of_rest_ = 0;
};

// `teacher` becomes the derivative.
double row_kl(const KlRows& rows, std::span<const float> student, std::span<float> teacher) {
  const double inverse = 1 / rows.temperature;
  const TokenSet rest = outside_top(teacher, rows.kl.top_k);
  const Outcomes p(student, inverse, rest), q(teacher, inverse, rest);
  const bool is_forward = rows.kl.is_forward;
  double kl = 0;
  const auto add = [&](double log_p, double log_q) {
    kl += is_forward ? std::exp(log_q) * (log_q - log_p) : std::exp(log_p) * (log_p - log_q);
  };
  for (size_t v = 0; v < teacher.size(); ++v)
    if (!contains(rest, v)) add(p.of_token(v), q.of_token(v));
  if (!rest.empty()) add(p.of_rest(), q.of_rest());
  for (size_t v = 0; v < teacher.size(); ++v) {
    const double own = p.of_token(v), difference = p.at(v) - q.at(v);
    const double slope =
        is_forward ? std::exp(own) - std::exp(own - difference) : std::exp(own) * (difference - kl);
    teacher[v] = static_cast<float>(slope * inverse);
  }
  return std::max(kl, 0.0);  // below 0 by rounding only
}

}  // namespace

std::vector<float> teacher_kl(const KlRows& rows, at::Tensor& teacher) {
  TLT_CHECK(rows.student.sizes() == teacher.sizes(), "logits of ", teacher.size(1), " tokens for ",
            rows.student.size(1));
  const at::Tensor student = rows.student.cpu();
  at::Tensor host = teacher.cpu();
  const auto size = static_cast<size_t>(host.size(1));
  std::vector<float> divergences(static_cast<size_t>(host.size(0)));
  rows.device.pool().run(host.size(0), [&](int64_t i) {
    divergences[static_cast<size_t>(i)] =
        static_cast<float>(row_kl(rows, {student.data_ptr<float>() + i * student.stride(0), size},
                                  {host.data_ptr<float>() + i * host.stride(0), size}));
  });
  if (!rows.device.is_cpu()) teacher.copy_(host);
  return divergences;
}

void scale_rows(std::span<const float> factors, at::Tensor& rows) {
  const at::Tensor column = at::empty({std::ssize(factors), 1}, at::kFloat);
  std::ranges::copy(factors, column.data_ptr<float>());
  rows.mul_(column.to(rows.device()));
}

}  // namespace tlt::train
